// A BiLSTM: 30 trials of the paper's hyperparameters.
// Another data set, or another variant: --base configs/bilstm_roc.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../bilstm_sst.jsonnet',
  parameters: spaces.bilstm,
  num_trials: 30,
  metric: '-loss',
}
