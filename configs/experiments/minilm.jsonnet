// Word pieces in context instead of word vectors: SoPa and a linear head over a frozen MiniLM. Epochs
// cost more, and few runs end at the limit.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Over a frozen MiniLM',
  ['sopa_minilm', 'minilm_linear'],
  ['sst'],
  epochs={ num_epochs: 30, patience: 5 },
) + { reference: 'sopa_minilm' }
