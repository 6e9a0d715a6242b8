// The three data sets of the paper (section 5), and how their text becomes words.
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
  // Running text.
  roc: {
    dataset: { type: 'roc', path: env('SOPA_ROC', 'fixtures/roc') },
    tokenizer: { type: 'words', lowercase: lowercase },
  },
}
