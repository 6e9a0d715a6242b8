// The paper's figure (section 6), right part: small training sets of Amazon.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Amazon with few training reviews',
  ['sopa', 'dan', 'hard', 'bilstm', 'cnn'],
  ['amazon'],
  sizes=[100, 500, 1000, 2500, 5000, 10000, null],
)
