// Ablation: SoPa in max-sum with identity, without self-loops and epsilons on the Stanford Sentiment Treebank.
// Over whitened vectors, which the paper does not have.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.sopa_max_sum_no_self_loops_no_epsilons + models.chosen
