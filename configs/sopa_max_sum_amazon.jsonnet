// Ablation: SoPa in max-sum with identity on Amazon reviews.
// Over whitened vectors, which the paper does not have.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.amazon + models.sopa_max_sum + models.chosen
