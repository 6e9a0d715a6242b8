// SoPa on ROC stories.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.roc + models.sopa + models.whitened
