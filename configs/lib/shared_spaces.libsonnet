// What is varied to find one setting of a model for all data sets.
local one_of(keys, values) = { type: 'choice', keys: keys, values: values };
local spaces = import 'spaces.libsonnet';

local common = {
  learning_rate: { type: 'uniform', keys: ['trainer.optimizer.lr'], low: 0.0005, high: 0.02, log: true },
  batch_size: one_of(['trainer.batch_size'], [20, 50, 150]),
  hidden: one_of(['model.head.hidden_dim'], [25, 50, 100, 300]),
  dropout: one_of(['model.encoder.dropout'], [0, 0.05, 0.1, 0.2, 0.3]),
  head_dropout: one_of(['model.head.dropout'], [0, 0.1, 0.2, 0.4]),
  whiten: one_of(['model.embedder.whiten'], [0, 0.25, 0.5, 0.75, 1]),
};

{
  sopa: common {
    patterns: one_of(['model.encoder.patterns'], [
      { '5': 10, '4': 10, '3': 10, '2': 10 },
      { '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 },
      { '5': 20, '4': 20, '3': 20, '2': 20 },
      { '4': 40, '3': 40, '2': 40 },
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
