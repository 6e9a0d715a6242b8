// Average word vectors and logistic regression on the Stanford Sentiment Treebank.
local data = import 'lib/data.libsonnet';
local models = import 'lib/models.libsonnet';

data.sst + models.bag_of_vectors
