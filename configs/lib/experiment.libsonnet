// What the descriptions under configs/experiments have in common.
// SOPA_BUDGET=paper (or --budget paper) takes the paper's budget: 30 trials of at most 250 epochs,
// patience 30. The default is sized for two cores; every model gets the same.
local data = import 'data.libsonnet';
local models = import 'models.libsonnet';
local published = import 'published.libsonnet';
local spaces = import 'spaces.libsonnet';

local budget = std.native('env')('SOPA_BUDGET', 'small');
local small = std.get({ small: true, paper: false }, budget, error "SOPA_BUDGET is 'small' or 'paper'");

local titles = {
  hard: 'Hard',
  dan: 'DAN',
  bilstm: 'BiLSTM',
  cnn: 'CNN',
  sopa: 'SoPa',
  sopa_max_sum: 'SoPa ms1',
  sopa_max_sum_no_self_loops: 'SoPa ms1 without sl',
  sopa_max_sum_no_epsilons: 'SoPa ms1 without eps',
  sopa_max_sum_no_self_loops_no_epsilons: 'SoPa ms1 without sl, eps',
  dan_whitened: 'DAN, whitened',
  bilstm_whitened: 'BiLSTM, whitened',
  cnn_whitened: 'CNN, whitened',
  sopa_whitened: 'SoPa, whitened',
  tfidf: 'TF-IDF',
  bag_of_vectors: 'Bag of vectors',
  minilm_linear: 'MiniLM + linear',
  sopa_minilm: 'MiniLM + SoPa',
};
local data_titles = { sst: 'SST', amazon: 'Amazon', roc: 'ROC' };

// A large BiLSTM takes most of the time of a small budget.
local smaller = if small then { [name]+: { dim+: { values: [100] } } for name in ['bilstm', 'bilstm_whitened'] } else {};

// ROC and the sample of Amazon reviews have few steps an epoch too, and are slow to start on.
local by_data(names, limit) = { [name]: limit for name in names if name != 'sst' };

{
  // Models and data sets by name, in the order of the table.
  compare(title, model_names, data_names, sizes=[null]):: {
    title: title,
    data: [
      { name: name, title: data_titles[name], config: data[name] }
      for name in data_names
    ],
    models: [
      {
        name: name,
        title: titles[name],
        config: models[name],
        parameters: (spaces + smaller)[name],
      }
      for name in model_names
    ],
    sizes: sizes,
    seeds: [1, 2, 3],
    tuning: { metric: '-loss' } + if small
    // an epoch of 100 sentences is a single step
    then {
      num_trials: 8,
      num_epochs: { '100': 200, '500': 100, '1000': 60, '2500': 40, all: 30 } + by_data(data_names, 60),
      patience: { '100': 30, '500': 15, '1000': 10, '2500': 6, all: 5 } + by_data(data_names, 12),
    }
    else { num_trials: 30, num_epochs: 250, patience: 30 },
    reference: 'sopa',
    published: published,
  },
}
