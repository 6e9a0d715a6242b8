// Ablation: SoPa in sum-product over sigmoids, the expected number of matches, on the Stanford Sentiment Treebank.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.sopa_sum_product
