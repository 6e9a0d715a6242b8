// A BiLSTM on the Stanford Sentiment Treebank, with one setting for all data sets (configs/experiments/README.md, "One default").
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.bilstm_default
