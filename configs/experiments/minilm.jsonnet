// Word pieces in context instead of word vectors: SoPa and a linear head over a frozen MiniLM.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare('Over a frozen MiniLM', ['sopa_minilm', 'minilm_linear'], ['sst']) + {
  reference: 'sopa_minilm',
}
