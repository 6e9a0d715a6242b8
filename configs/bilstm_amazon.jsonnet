// A BiLSTM on Amazon reviews, with one setting for all data sets (configs/experiments/README.md, "One default").
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.amazon + models.bilstm_default
