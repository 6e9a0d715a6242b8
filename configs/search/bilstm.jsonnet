// A BiLSTM: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/bilstm_roc.jsonnet -o base.model.head=mlp
local data = import '../lib/data.libsonnet';
local models = import '../lib/models.libsonnet';
local spaces = import '../lib/spaces.libsonnet';

{
  base: data.sst + models.bilstm,  // as in the paper
  parameters: spaces.bilstm,
  num_trials: 30,
  metric: '-loss',
}
