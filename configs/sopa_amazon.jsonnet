// SoPa on Amazon reviews.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.amazon + models.sopa + models.whitened
