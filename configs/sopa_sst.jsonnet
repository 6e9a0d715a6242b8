// SoPa on the Stanford Sentiment Treebank: whole sentences, positive or negative.
// Reads the embedded sample, or the real thing:
//   SOPA_SST=path/to/trees SOPA_VECTORS=glove.840B.300d.txt
// The setting is one for all data sets (configs/experiments/README.md, "One default"). As in the paper:
// 250 epochs, patience 30 on dev loss, unit-length vectors; they are whitened before, and weights
// decay, which it does not do (whiten: 0 and weight_decay: 0 do without).
local env = std.native('env');
local sample = 'fixtures/sst';
local path = env('SOPA_SST', sample);

{
  dataset: { type: 'sst', path: path },
  tokenizer: { type: 'whitespace', lowercase: env('SOPA_LOWERCASE', true) },
  model: {
    type: 'text_classifier',
    embedder: {
      type: 'static',
      vectors: env('SOPA_VECTORS', 'fixtures/vectors.txt'),
      trainable: false,
      whiten: 1,
    },
    encoder: {
      type: 'sopa',
      patterns: { '4': 100, '3': 100, '2': 100 },
      semiring: 'max_product',
      dropout: 0.1,
    },
    head: { type: 'linear', dropout: 0.5 },
  },
  trainer: {
    type: 'accelerate',
    // of the few sentences of the sample, batches of 50 would be eight steps an epoch
    batch_size: if path == sample then 20 else 50,
    num_epochs: 250,
    patience: 30,
    validation_metric: '-loss',
    optimizer: { type: 'adamw', lr: 0.0035, weight_decay: 0.1, fused: true },
  },
  seed: 1,
}
