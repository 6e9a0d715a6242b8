// A frozen MiniLM, its average and a linear head on the Stanford Sentiment Treebank.
// SOPA_MINILM=path/to/model takes a local folder instead of the Hub.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.minilm_linear
