// Hard patterns: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/hard_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../hard_sst.jsonnet',
  parameters: spaces.hard,
  num_trials: 30,
  metric: '-loss',
}
