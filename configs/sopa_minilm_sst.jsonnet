// SoPa over a frozen MiniLM on the Stanford Sentiment Treebank.
// SOPA_MINILM=path/to/model takes a local folder instead of the Hub.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.sopa_minilm
