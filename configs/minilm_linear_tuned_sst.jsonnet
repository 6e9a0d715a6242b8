// A linear layer over the mean of a MiniLM's word pieces, all trained: what most people would fine-tune.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.minilm_linear_tuned
