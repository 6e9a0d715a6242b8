// The paper's figure (section 6), left part: small training sets of SST.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'SST with few training sentences',
  ['sopa', 'sopa_whitened', 'dan', 'hard', 'bilstm', 'cnn', 'tfidf'],
  ['sst'],
  sizes=[100, 500, 1000, 2500, null],
)
