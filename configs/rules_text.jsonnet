// Rules as a classifier that needs no label: each has a vote for its own. With texts of your own,
// in a column `text` (or -o dataset.text_column=...), and rules of your own:
//   python -m sopa_plugin.train configs/rules_text.jsonnet -s runs/mine \
//     -o dataset.path=texts.csv -o model.rules=rules.jsonl -o model.fallback=negative
// Once some texts have labels it learns from them:
//     -o dataset.label_column=label -o dataset.test_size=0.2 -o trainer.num_epochs=60
{
  dataset: { type: 'text', path: 'fixtures/rules/films.csv', label_column: null },
  // Words as they are written, since rules may ask for capitals; lowercase: true folds them.
  tokenizer: { type: 'words' },
  model: {
    type: 'text_classifier',
    // Of use once it learns; vectors of a file (vectors: 'glove.6B.100d.txt', trainable: false) are better.
    embedder: { type: 'static', embedding_dim: 50, trainable: true },
    encoder: { type: 'sopa', patterns: {} },  // free patterns beside those of the rules
    head: { type: 'linear' },
    rules: 'fixtures/rules/films.jsonl',
    // fallback: the label where no rule fires; by default the first of the rules
  },
  trainer: {
    type: 'accelerate',
    batch_size: 20,
    num_epochs: 0,
    validation_metric: '+epoch',  // the last one, whatever dev says
    optimizer: { type: 'adam', lr: 0.0035 },
  },
  seed: 1,
}
