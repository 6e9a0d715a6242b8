// A setting of the DAN that does well on all data sets: 40 settings by random search.
local experiment = import '../lib/experiment.libsonnet';

experiment.shared('dan', num_trials=40)
