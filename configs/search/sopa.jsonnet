// SoPa: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/sopa_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../sopa_sst.jsonnet',
  parameters: spaces.sopa,
  num_trials: 30,
  metric: '-loss',
}
