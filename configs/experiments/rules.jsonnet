// Rules with few labels: rules alone, with free patterns beside them, and models without rules.
// A small example by default; SOPA_RULES=path/to/rules for the published sets of Jiang et al. (2020),
// SOPA_RULES_SET=atis or trec.
// All settings were fixed by dev at a tenth of the labels: of 100 epochs none after the 60th or so
// gains by much, and an anchor (.1 to 1) does not gain in accuracy. Every run takes its last
// epoch, so that no dev label decides anything.
local data = import '../lib/data.libsonnet';
local models = import '../lib/models.libsonnet';
local env = std.native('env');

local folder = env('SOPA_RULES', '');
local name = env('SOPA_RULES_SET', if folder == '' then 'films' else 'atis');
local sets = {
  films: {
    title: 'Film opinions',
    data: data.sst,
    sizes: [20, 100, null],
    rules: { rules: 'fixtures/rules/films.jsonl', fallback: 'negative' },
  },
  atis: {
    title: 'ATIS',
    data: data.atis,
    sizes: [40, 398, null],  // 1 %, 10 %, all
    rules: {
      rules: folder + '/atis/rules.txt',
      fallback: 'flight',
      // as their authors have it
      precedence: {
        ground_fare: ['ground_service'],
        flight: ['city', 'airport', 'airline', 'meal', 'capacity', 'cheapest', 'distance', 'flight+airline'],
        airfare: ['flight'],
        abbreviation: ['restriction'],
        ground_service: ['airport'],
      },
    },
  },
  trec: {
    title: 'TREC',
    data: data.trec,
    sizes: [50, 496, null],
    rules: {
      rules: folder + '/trec/rules.txt',
      fallback: 'DESCRIPTION',
      precedence: { ENTITY: ['DESCRIPTION'] },
    },
  },
};
local chosen = std.get(sets, name, error "SOPA_RULES_SET is 'films', 'atis' or 'trec'");

local kept_unseen = { dataset+: { unseen_classes: 'keep' } };
local last_epoch(epochs) = { trainer+: { num_epochs: epochs, patience: null, validation_metric: '+epoch' } };
local faster = { trainer+: { batch_size: 50, optimizer+: { lr: 0.003 } } };  // for a tenth of the labels, in as many epochs
// as the table was made: without dropout in the head
local free(patterns) = models.sopa_default + { model+: { encoder+: { patterns: patterns }, head: { type: 'linear' } } };
local few = { '4': 14, '3': 13, '2': 13 };
local many = { '4': 27, '3': 27, '2': 26 };
local with_rules = { model+: chosen.rules };

{
  title: 'Rules on ' + chosen.title + ' with few labels',
  data: [{ name: name, title: chosen.title, config: chosen.data + kept_unseen }],
  models: [
    { name: 'rules_as_written', title: 'Rules as written', config: free({}) + with_rules + last_epoch(0) },
    { name: 'rules', title: 'Rules, trained', config: free({}) + with_rules + last_epoch(60) },
    { name: 'rules_free', title: 'Rules and 40 free patterns', config: free(few) + with_rules + last_epoch(60) },
    { name: 'free', title: '80 free patterns', config: free(many) + last_epoch(60) },
    { name: 'tfidf', title: 'TF-IDF', config: models.tfidf },
    { name: 'cnn', title: 'CNN', config: models.cnn + faster + last_epoch(60) },
    { name: 'bilstm', title: 'BiLSTM', config: models.bilstm + faster + last_epoch(60) },
  ],
  sizes: chosen.sizes,
  seeds: [1, 2, 3],
  tuning: { num_trials: 0 },
  reference: 'rules_free',
}
