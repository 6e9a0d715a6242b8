// The paper's table of results (section 6), upper part, and three baselines of today.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Test accuracy',
  ['hard', 'dan', 'bilstm', 'cnn', 'sopa', 'tfidf', 'bag_of_vectors'],
  ['roc', 'sst', 'amazon'],
)
