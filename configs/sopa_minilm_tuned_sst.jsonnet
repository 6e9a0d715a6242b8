// SoPa over a MiniLM that is trained along, on the Stanford Sentiment Treebank: a few epochs, each of
// which costs many times one over the frozen model. `sopa_minilm_sst` keeps it frozen.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.sopa_minilm_tuned
