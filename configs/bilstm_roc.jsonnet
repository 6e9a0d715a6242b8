// A BiLSTM on ROC stories, with one setting for all data sets (configs/experiments/README.md, "One default").
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.roc + models.bilstm_default
