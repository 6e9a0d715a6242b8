// Ablation: SoPa in log space, the logarithm of sum-product's scores, on the Stanford Sentiment Treebank.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.sopa_log
