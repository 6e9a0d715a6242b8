// A BiLSTM on the Stanford Sentiment Treebank.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.bilstm
