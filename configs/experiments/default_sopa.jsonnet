// A setting of SoPa that does well on all data sets: 40 settings by random search.
local experiment = import '../lib/experiment.libsonnet';

experiment.shared('sopa', num_trials=40)
