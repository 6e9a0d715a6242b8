// Ablation: SoPa in max-sum with identity, without epsilons on ROC stories.
// Over whitened vectors, which the paper does not have.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.roc + models.sopa_max_sum_no_epsilons + models.chosen
