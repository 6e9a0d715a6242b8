// SoPa: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/sopa_roc.jsonnet -o base.model.head=mlp
local spaces = import '../lib/spaces.libsonnet';

{
  base: (import '../sopa_sst.jsonnet') + { model+: { head: { type: 'mlp' } } },  // as in the paper
  parameters: spaces.sopa,
  num_trials: 30,
  metric: '-loss',
}
