// A deep averaging network: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/dan_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../dan_sst.jsonnet',
  parameters: spaces.dan,
  num_trials: 30,
  metric: '-loss',
}
