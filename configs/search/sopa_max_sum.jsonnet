// SoPa in max-sum with identity: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/sopa_max_sum_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: (import '../sopa_max_sum_sst.jsonnet') + { model+: { head: { type: 'mlp' } } },  // as in the paper
  parameters: spaces.sopa_max_sum,
  num_trials: 30,
  metric: '-loss',
}
