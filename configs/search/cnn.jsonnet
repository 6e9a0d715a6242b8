// A CNN: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/cnn_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../cnn_sst.jsonnet',
  parameters: spaces.cnn,
  num_trials: 30,
  metric: '-loss',
}
