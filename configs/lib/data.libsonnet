// The three data sets of the paper (section 5), two of questions and requests with several classes,
// and how their text becomes words.
// Each reads the embedded sample, or what its environment variable points to. Vectors are
// lower-cased here, as GloVe 6B's are; with cased ones (GloVe 840B) set SOPA_LOWERCASE=false.
local env = std.native('env');
local lowercase = env('SOPA_LOWERCASE', true);

{
  // Tokenised as published.
  sst: {
    dataset: { type: 'sst', path: env('SOPA_SST', 'fixtures/sst') },
    tokenizer: { type: 'whitespace', lowercase: lowercase },
  },
  amazon: {
    dataset: { type: 'amazon', path: env('SOPA_AMAZON', 'fixtures/amazon') },
    tokenizer: { type: 'whitespace', lowercase: lowercase },
  },
  // Folders `trec` and `atis` with train, dev and test as .tsv (label, text), tokenised. Some classes
  // of ATIS are rare, and a few are in dev or test alone.
  trec: {
    dataset: { type: 'text', path: env('SOPA_RULES', 'fixtures/rules') + '/trec' },
    tokenizer: { type: 'whitespace', lowercase: lowercase },
  },
  atis: {
    dataset: { type: 'text', path: env('SOPA_RULES', 'fixtures/rules') + '/atis', unseen_classes: 'keep' },
    tokenizer: { type: 'whitespace', lowercase: lowercase },
  },
  // Running text.
  roc: {
    dataset: { type: 'roc', path: env('SOPA_ROC', 'fixtures/roc') },
    tokenizer: { type: 'words', lowercase: lowercase },
  },
}
