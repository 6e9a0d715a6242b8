// The paper's figure (section 6), left part: small training sets of SST.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'SST with few training sentences',
  ['sopa', 'dan', 'hard', 'bilstm', 'cnn'],
  ['sst'],
  sizes=[100, 500, 1000, 2500, null],
)
