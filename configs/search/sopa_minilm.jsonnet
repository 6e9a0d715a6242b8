// SoPa over a frozen MiniLM: 30 trials of its hyperparameters.
// Another data set, or another variant: --base configs/sopa_minilm_sst.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../sopa_minilm_sst.jsonnet',
  parameters: spaces.sopa_minilm,
  num_trials: 30,
  metric: '-loss',
}
