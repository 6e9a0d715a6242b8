// A setting of the CNN that does well on all data sets: 40 settings by random search.
local experiment = import '../lib/experiment.libsonnet';

experiment.shared('cnn', num_trials=40)
