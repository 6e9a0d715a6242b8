// What the descriptions under configs/experiments have in common.
// SOPA_BUDGET=paper (or --budget paper) takes the paper's budget: 30 trials of at most 250 epochs,
// patience 30. The default is sized for two cores; every model gets the same.
local data = import 'data.libsonnet';
local models = import 'models.libsonnet';
local published = import 'published.libsonnet';
local shared_spaces = import 'shared_spaces.libsonnet';
local spaces = import 'spaces.libsonnet';

local budget = std.native('env')('SOPA_BUDGET', 'small');
local small = std.get({ small: true, paper: false }, budget, error "SOPA_BUDGET is 'small' or 'paper'");

local titles = {
  hard: 'Hard',
  dan: 'DAN',
  bilstm: 'BiLSTM',
  cnn: 'CNN',
  sopa: 'SoPa',
  sopa_max_sum: 'SoPa, max-sum',
  sopa_max_sum_no_self_loops: 'SoPa, max-sum, no self-loops',
  sopa_max_sum_no_epsilons: 'SoPa, max-sum, no epsilons',
  sopa_max_sum_no_self_loops_no_epsilons: 'SoPa, max-sum, neither',
  sopa_sum_product: 'SoPa, sum-product',
  sopa_log: 'SoPa, log',
  dan_whitened: 'DAN, whitened',
  bilstm_whitened: 'BiLSTM, whitened',
  cnn_whitened: 'CNN, whitened',
  sopa_whitened: 'SoPa, whitened',
  sopa_default: 'SoPa, the default',
  cnn_default: 'CNN, the default',
  dan_default: 'DAN, the default',
  bilstm_default: 'BiLSTM, the default',
  tfidf: 'TF-IDF',
  bag_of_vectors: 'Bag of vectors',
  minilm_linear: 'MiniLM + linear',
  sopa_minilm: 'MiniLM + SoPa',
};
local five = ['sst', 'roc', 'amazon', 'trec', 'atis'];
local data_titles = { sst: 'SST', amazon: 'Amazon', roc: 'ROC', trec: 'TREC', atis: 'ATIS' };

// A large BiLSTM takes most of the time of a small budget.
local smaller = if small then { [name]+: { dim+: { values: [100] } } for name in ['bilstm', 'bilstm_whitened'] } else {};

// Of the small budget. An epoch of 100 sentences is a single step; with half the epochs, many runs of
// SoPa and of the DAN would end at the limit.
local small_epochs = {
  num_epochs: { '100': 200, '500': 100, all: 60 },
  patience: { '100': 30, '500': 15, '1000': 10, all: 12 },
};

{
  // Models and data sets by name, in the order of the table; `epochs` is what a small budget has.
  compare(title, model_names, data_names, sizes=[null], epochs=small_epochs):: {
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
    then { num_trials: 8 } + epochs
    else { num_trials: 30, num_epochs: 250, patience: 30 },
    reference: 'sopa',
    published: published,
  },

  // Models as their configs are shipped, without a search.
  shipped(model_names):: self.compare('The shipped settings', model_names, five) + {
    models: [each { parameters: {} } for each in super.models],
    tuning: { num_trials: 0 },
    reference: model_names[0],
    published: null,
  },

  // One setting of a model for all data sets, by random search: the first seed of each trial, on 500
  // training texts (with the paper's budget, on all too). How one is chosen is in
  // configs/experiments/README.md.
  shared(name, num_trials):: self.compare(
    'One setting of ' + titles[name] + ' for all data sets',
    [name],
    five,
    sizes=if small then [500] else [500, null],
  ) + {
    models: [
      each { config+: { trainer+: { optimizer+: { type: 'adamw' } } }, parameters: shared_spaces[name] }
      for each in super.models
    ],
    seeds: [1],
    tuning+: { num_trials: num_trials },
    reference: null,
  },
}
