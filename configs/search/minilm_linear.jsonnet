// A frozen MiniLM, its average and a linear head: 30 trials of its hyperparameters.
// Another data set, or another variant: --base configs/minilm_linear_sst.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../minilm_linear_sst.jsonnet',
  parameters: spaces.minilm_linear,
  num_trials: 30,
  metric: '-loss',
}
