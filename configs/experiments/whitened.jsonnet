// Word vectors with their directions evened out (`whiten` of the embedder `static`), for every model.
local experiment = import '../lib/experiment.libsonnet';

experiment.compare(
  'Whitened word vectors',
  ['dan_whitened', 'bilstm_whitened', 'cnn_whitened', 'sopa_whitened', 'sopa'],
  ['roc', 'sst', 'amazon'],
) + { reference: 'sopa_whitened' }
