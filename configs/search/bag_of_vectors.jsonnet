// Average word vectors and logistic regression: 30 trials of its hyperparameters.
// Another data set, or another variant: --base configs/bag_of_vectors_sst.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../bag_of_vectors_sst.jsonnet',
  parameters: spaces.bag_of_vectors,
  num_trials: 30,
  metric: '-loss',
}
