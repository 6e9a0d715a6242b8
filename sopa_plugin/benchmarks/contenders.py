"""What soft patterns are measured against, each as a classifier of padded batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.data.batches import Batch, Documents, Integers
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.heads import MlpHead
from sopa_plugin.models import TextClassifier
from sopa_plugin.wfsa.reference import Recurrence

FILTERS, WINDOW = 100, 5
HIDDEN = 100
REFERENCE, CONVOLUTION, BILSTM = "reference loop", "Conv1d + max-pool", f"BiLSTM({HIDDEN})"
"""What tables call them."""

LEARNING_RATE = 0.005


def word_vectors(model: TextClassifier) -> Tensor:
    """The frozen vectors of a classifier's words, `[words, dim]`."""
    return model.get_parameter("embedder.weight").detach()


class Contender(nn.Module):
    """A classifier of padded batches over frozen word vectors.

    Arguments:
        vectors: of all words, `[words, dim]`.
        output_dim: of its document vector.
    """

    def __init__(self, vectors: Tensor, output_dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor
        self.head = MlpHead(output_dim, num_labels=2, hidden_dim=25)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits `[batch, 2]`."""
        tokens = functional.embedding(input_ids, self.vectors)
        logits: Tensor = self.head(self.encode(tokens, attention_mask))
        return logits

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors of `tokens [batch, tokens, dim]` under `mask [batch, tokens]`."""
        raise NotImplementedError


class Convolution(Contender):
    """Conv1d(dim → 100, window 5), the maximum over time, ReLU."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__(vectors, FILTERS)
        self.convolution = nn.Conv1d(vectors.shape[1], FILTERS, WINDOW, padding=WINDOW // 2)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The best of all windows, those over padding too, as is usual."""
        return self.convolution(tokens.transpose(1, 2)).amax(dim=2).relu()  # type: ignore[no-any-return]


class Bilstm(Contender):
    """BiLSTM(100), the average of its states."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__(vectors, 2 * HIDDEN)
        self.lstm = nn.LSTM(vectors.shape[1], HIDDEN, batch_first=True, bidirectional=True)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The average over real tokens; with sentences of like length, packing would only cost."""
        states = self.lstm(tokens)[0]
        real = mask[:, :, None].to(states.dtype)
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)  # type: ignore[no-any-return]


class Average(Contender):
    """A deep averaging network of one layer: the average of word vectors, 100 hidden units."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__(vectors, HIDDEN)
        self.layer = nn.Linear(vectors.shape[1], HIDDEN)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """A layer over the average of the real tokens."""
        real = mask[:, :, None].to(tokens.dtype)
        average = (tokens * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        return self.layer(average).relu()  # type: ignore[no-any-return]


class ReferenceLoop(Contender):
    """The same soft patterns on the padded batch, one time step at a time, gradients by autograd.

    Arguments:
        model: whose patterns and head it shares.
    """

    def __init__(self, model: TextClassifier) -> None:
        assert isinstance(model.encoder, SopaEncoder)
        super().__init__(word_vectors(model), model.encoder.get_output_dim())
        self.encoder = model.encoder
        self.head = model.head  # type: ignore[assignment]

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors: a step of the recurrence for each column of the padded batch."""
        encoder, arcs = self.encoder, self.encoder.arcs
        algebra, encode = encoder.options.algebra, encoder.options.encode
        scores = encode(functional.linear(tokens, arcs.weight, arcs.bias))
        recurrence = Recurrence(encoder.layout, algebra, encode(arcs.epsilon))
        state = recurrence.start(len(tokens))
        best = torch.full_like(state[:, : encoder.get_output_dim()], algebra.zero)
        for column, real in zip(scores.unbind(dim=1), mask.bool().unbind(dim=1), strict=True):
            state, read, *_ = recurrence.step(state, column)
            best = torch.where(real[:, None], algebra.plus(best, read), best)
        return encoder.document_vector(best, tokens.dtype)  # type: ignore[no-any-return]


class Trained:
    """A classifier with its optimizer: makes its batches and takes training steps.

    Arguments:
        model: a `TextClassifier`, or a contender.
        documents: what batches are made of.
        device: where it trains.
    """

    def __init__(
        self, model: TextClassifier | Contender, documents: Documents, device: str = "cpu"
    ) -> None:
        self.model = model.to(device).train()  # type: ignore[arg-type]
        self.documents = documents
        self.device = device
        trained = [each for each in model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE, fused=True)

    def batch(self, numbers: Integers) -> Batch:
        """The documents of these numbers in the form that the model takes, on its device."""
        if isinstance(self.model, TextClassifier):
            batch = self.model.make_batch(self.documents, numbers)
        else:
            batch = self.documents.padded(numbers, 0)
        return {name: each.to(self.device) for name, each in batch.items()}

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch from `batch`."""
        batch = dict(batch)
        labels = batch.pop("labels")
        output = self.model(**batch)
        logits = output if isinstance(output, Tensor) else output.logits
        return functional.cross_entropy(logits, labels)

    def step(self, numbers: Integers) -> None:
        """A training step, all included."""
        self.loss(self.batch(numbers)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
