// The paper's table of results (section 6), upper part; SoPa over whitened vectors, and two baselines
// of today.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Test accuracy',
  ['hard', 'dan', 'bilstm', 'cnn', 'sopa', 'sopa_whitened', 'tfidf', 'bag_of_vectors'],
  ['roc', 'sst', 'amazon'],
)
