// A deep averaging network: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/dan_roc.jsonnet
local data = import '../lib/data.libsonnet';
local models = import '../lib/models.libsonnet';
local spaces = import '../lib/spaces.libsonnet';

{
  base: data.sst + models.dan,  // as in the paper
  parameters: spaces.dan,
  num_trials: 30,
  metric: '-loss',
}
