// SoPa on Amazon reviews. Over whitened vectors, which the paper does not have.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.amazon + models.sopa + models.chosen
