// SoPa on the Stanford Sentiment Treebank: whole sentences, positive or negative.
// Reads the embedded sample, or the real thing:
//   SOPA_SST=path/to/trees SOPA_VECTORS=glove.840B.300d.txt
// The paper's protocol: batches of 150, 250 epochs, patience 30 on dev loss, unit-length vectors;
// whitened before, which the paper does not do (whiten: 0 does without).
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
      whiten: 0.5,
    },
    encoder: {
      type: 'sopa',
      patterns: { '6': 10, '5': 10, '4': 10, '3': 10, '2': 10 },
      semiring: 'max_product',
      dropout: 0.3,
    },
    head: { type: 'mlp', hidden_dim: 25, dropout: 0.2 },
  },
  trainer: {
    type: 'accelerate',
    // of the few sentences of the sample, batches of 150 would be three steps an epoch
    batch_size: if path == sample then 20 else 150,
    num_epochs: 250,
    patience: 30,
    validation_metric: '-loss',
    optimizer: { type: 'adam', lr: 0.002, fused: true },
  },
  seed: 1,
}
