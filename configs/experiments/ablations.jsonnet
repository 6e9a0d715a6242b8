// The paper's ablations (section 6), lower part of its table of results, and sums over all paths.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Ablations',
  [
    'sopa',
    'sopa_max_sum',
    'sopa_max_sum_no_self_loops',
    'sopa_max_sum_no_epsilons',
    'sopa_max_sum_no_self_loops_no_epsilons',
    'sopa_sum_product',
    'sopa_log',
  ],
  ['roc', 'sst', 'amazon'],
)
