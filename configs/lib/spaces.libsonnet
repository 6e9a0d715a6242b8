// What is tuned of each model: the paper's table of hyperparameters (appendix).
local one_of(keys, values) = { type: 'choice', keys: keys, values: values };

local learning_rate = one_of(['trainer.optimizer.lr'], [0.01, 0.05, 0.001, 0.005]);
local hidden = one_of(['model.head.hidden_dim'], [10, 25, 50, 100, 300]);
local dropout = one_of(['model.encoder.dropout', 'model.head.dropout'], [0, 0.05, 0.1, 0.2]);
local C(values) = one_of(['trainer.C'], values);

local sopa = {
  patterns: one_of(['model.encoder.patterns'], [
    { '5': 10, '4': 10, '3': 10, '2': 10 },
    { '6': 10, '5': 10, '4': 10 },
    { '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 },
    { '6': 20, '5': 20, '4': 10, '3': 10, '2': 10 },
    { '7': 10, '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 },
  ]),
  learning_rate: learning_rate,
  dropout: dropout,
  hidden: hidden,
};

{
  hard: {
    C: C([1, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001]),
    min_frequency: one_of(['model.min_frequency'], [2, 3, 4, 5, 6, 7, 8, 9, 10, 0.001]),
  },
  dan: {
    word_dropout: one_of(['model.encoder.word_dropout'], [0.1, 0.2, 0.3, 0.4]),
    learning_rate: learning_rate,
    hidden: hidden,
  },
  bilstm: {
    dim: one_of(['model.encoder.hidden_dim'], [100, 200, 300]),
    learning_rate: learning_rate,
    dropout: dropout,
    hidden: hidden,
  },
  cnn: {
    filters: one_of(['model.encoder.num_filters'], [50, 100, 200]),
    window: one_of(['model.encoder.window_sizes'], [[4], [5], [6]]),
    learning_rate: learning_rate,
    dropout: dropout,
    hidden: hidden,
  },
  sopa: sopa,
  sopa_max_sum: sopa,
  sopa_max_sum_no_self_loops: sopa,
  sopa_max_sum_no_epsilons: sopa,
  sopa_max_sum_no_self_loops_no_epsilons: sopa,
  sopa_sum_product: sopa,
  sopa_log: sopa,

  // Not in the paper.
  dan_whitened: self.dan,
  bilstm_whitened: self.bilstm,
  cnn_whitened: self.cnn,
  sopa_whitened: self.sopa,
  tfidf: {
    C: C([0.1, 0.3, 1, 3, 10, 30, 100]),
    ngram: one_of(['model.max_ngram'], [1, 2, 3]),
  },
  bag_of_vectors: { C: C([0.1, 1, 10, 100, 1000]) },
  minilm_linear: { learning_rate: learning_rate },
  sopa_minilm: sopa,
}
