// Fewer and shorter patterns: a group lasso over states (trainer.state_lasso), from 50 patterns of 2
// to 6 states and from 120 of 2 to 4, beside patterns whose numbers and lengths are given.
// One setting for all, that of the shipped configs but for the patterns, fewer epochs and, so that the
// penalty is the only one, no weight decay and no dropout in the head.
local data = import '../lib/data.libsonnet';
local models = import '../lib/models.libsonnet';

local of(patterns, state_lasso=0) = models.sopa_default + {
  model+: { encoder+: { patterns: patterns }, head: { type: 'linear' } },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.0035, fused: true },
    num_epochs: 40,
    patience: 6,
    state_lasso: state_lasso,
  },
};
local given(name, title, patterns) = { name: name, title: title, line: 'given', config: of(patterns) };
local lasso(start, patterns, strength) = {
  name: 'lasso_%d_%g' % [start, 10000 * strength],  // without a point
  title: '%g, from %d' % [strength, start],
  line: 'group lasso, from %d patterns' % start,
  config: of(patterns, strength),
};
local fifty = { '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 };
local many = { '4': 40, '3': 40, '2': 40 };

{
  title: 'Fewer and shorter patterns',
  data: [{ name: 'sst', title: 'SST', config: data.sst }],
  models: [
    given('fifty', '50 patterns', fifty),
    given('ten_of_4', '10 of 4 states', { '4': 10 }),
    given('ten_of_2', '10 of 2 states', { '2': 10 }),
  ] + [
    lasso(50, fifty, strength)
    for strength in [0.0005, 0.001, 0.002, 0.004]
  ] + [
    lasso(120, many, strength)
    for strength in [0.001, 0.002, 0.004]
  ],
  sizes: [null],
  seeds: [1, 2, 3],
  tuning: { num_trials: 0 },
  reference: 'fifty',
}
