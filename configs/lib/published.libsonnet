// The paper's figures, in percent: its table of results and its figure (section 6).
// They were made with 300-dimensional GloVe 840B vectors and the whole Amazon set.
{
  title: 'paper (GloVe 840B 300-d)',
  accuracies: {
    hard: {
      roc: { all: 62.2 },
      sst: { '100': 57.8, '500': 61.7, '1000': 68.5, '2500': 71.1, all: 75.5 },
      amazon: { '100': 68.5, '500': 78.4, '1000': 80.1, '2500': 83.6, '5000': 86, '10000': 87.3, all: 88.5 },
    },
    dan: {
      roc: { all: 64.3 },
      sst: { '100': 72, '500': 79.4, '1000': 80.3, '2500': 81.9, all: 83.1 },
      amazon: { '100': 71.4, '500': 78.7, '1000': 79.7, '2500': 82.1, '5000': 83.7, '10000': 84.5, all: 85.4 },
    },
    bilstm: {
      roc: { all: 65.2 },
      sst: { '100': 71.5, '500': 79.4, '1000': 81.4, '2500': 83.4, all: 84.8 },
      amazon: { '100': 69.6, '500': 79.6, '1000': 83.6, '2500': 86.3, '5000': 88, '10000': 89.4, all: 90.8 },
    },
    cnn: {
      roc: { all: 64.3 },
      sst: { '100': 73.2, '500': 79.6, '1000': 81.7, '2500': 84.1, all: 82.2 },
      amazon: { '100': 73.9, '500': 80.2, '1000': 82.9, '2500': 86.1, '5000': 87.5, '10000': 88.8, all: 90.2 },
    },
    sopa: {
      roc: { all: 66.5 },
      sst: { '100': 75.8, '500': 80.5, '1000': 81.3, '2500': 82.9, all: 85.6 },
      amazon: { '100': 77.2, '500': 82, '1000': 84.2, '2500': 86.3, '5000': 88, '10000': 88.8, all: 90.5 },
    },
    sopa_max_sum: { roc: { all: 64.4 }, sst: { all: 84.8 }, amazon: { all: 90.0 } },
    sopa_max_sum_no_self_loops: { roc: { all: 63.2 }, sst: { all: 84.6 }, amazon: { all: 89.8 } },
    sopa_max_sum_no_epsilons: { roc: { all: 64.3 }, sst: { all: 83.6 }, amazon: { all: 89.7 } },
    sopa_max_sum_no_self_loops_no_epsilons: { roc: { all: 64.0 }, sst: { all: 85.0 }, amazon: { all: 89.5 } },
  },
  parameters: {
    hard: { roc: '4K', sst: '6K', amazon: '67K' },
    dan: { roc: '91K', sst: '91K', amazon: '91K' },
    bilstm: { roc: '844K', sst: '1.5M', amazon: '844K' },
    cnn: { roc: '155K', sst: '62K', amazon: '305K' },
    sopa: { roc: '255K', sst: '255K', amazon: '256K' },
  },
}
