// A setting of the BiLSTM that does well on all data sets: 12 settings by random search.
local experiment = import '../lib/experiment.libsonnet';

experiment.shared('bilstm', num_trials=12)
