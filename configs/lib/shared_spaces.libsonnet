// What is varied to find one setting of a model for all data sets.
local one_of(keys, values) = { type: 'choice', keys: keys, values: values };
local spaces = import 'spaces.libsonnet';

local common = {
  learning_rate: { type: 'uniform', keys: ['trainer.optimizer.lr'], low: 0.0005, high: 0.02, log: true },
  batch_size: one_of(['trainer.batch_size'], [20, 50, 150]),
  dropout: one_of(['model.encoder.dropout'], [0, 0.05, 0.1, 0.2, 0.3]),
  weight_decay: one_of(['trainer.optimizer.weight_decay'], [0, 0.03, 0.1, 0.3]),
  head: one_of(['model.head'], [
    { type: 'linear', dropout: 0 },
    { type: 'linear', dropout: 0.3 },
    { type: 'linear', dropout: 0.5 },
    { type: 'mlp', hidden_dim: 25, dropout: 0.2 },
    { type: 'mlp', hidden_dim: 100, dropout: 0.2 },
    { type: 'mlp', hidden_dim: 300, dropout: 0.4 },
  ]),
  whiten: one_of(['model.embedder.whiten'], [0, 0.25, 0.5, 0.75, 1]),
};

{
  sopa: common {
    patterns: one_of(['model.encoder.patterns'], [
      { '5': 10, '4': 10, '3': 10, '2': 10 },
      { '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 },
      { '5': 20, '4': 20, '3': 20, '2': 20 },
      { '4': 40, '3': 40, '2': 40 },
      { '4': 100, '3': 100, '2': 100 },
      { '6': 40, '5': 40, '4': 40, '3': 40, '2': 40 },
    ]),
  },
  cnn: common {
    filters: one_of(['model.encoder.num_filters'], [50, 100, 200]),
    window: one_of(['model.encoder.window_sizes'], [[3], [4], [5], [2, 3, 4], [3, 4, 5]]),
  },
  bilstm: common { width: one_of(['model.encoder.hidden_dim'], [50, 100, 200]) },
  dan: common { dropout:: null, word_dropout: one_of(['model.encoder.word_dropout'], [0, 0.1, 0.2, 0.3, 0.4]) },
}
