// TF-IDF and logistic regression: 30 trials of its hyperparameters.
// Another data set, or another variant: --base configs/tfidf_sst.jsonnet
local spaces = import '../lib/spaces.libsonnet';

{
  base: import '../tfidf_sst.jsonnet',
  parameters: spaces.tfidf,
  num_trials: 30,
  metric: '-loss',
}
