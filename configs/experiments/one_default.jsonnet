// Shipped settings on data sets that they were not tuned for one by one.
local experiment = import '../lib/experiment.libsonnet';

experiment.shipped(['sopa_default', 'cnn_default', 'dan_default', 'bilstm_default', 'tfidf'])
