"""What soft patterns are measured against, each as a classifier of padded batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.benchmarks.workload import BATCH_SIZE
from sopa_plugin.data.batches import Batch, Documents, Integers
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.heads import MlpHead
from sopa_plugin.models import TextClassifier
from sopa_plugin.training.captured_step import CapturedStep
from sopa_plugin.wfsa.reference import Recurrence

FILTERS, WINDOW = 100, 5
HIDDEN = 100
REFERENCE, CONVOLUTION, BILSTM = "reference loop", "Conv1d + max-pool", f"BiLSTM({HIDDEN})"
"""What tables call them."""
LEARNING_RATE = 0.005


def word_vectors(model: TextClassifier) -> Tensor:
    """The frozen vectors of a classifier's words, `[words, dim]`."""
    return model.get_parameter("embedder.weight").detach()


class Convolution(nn.Module):
    """Conv1d(dim → 100, window 5), the maximum over all windows, ReLU."""

    output_dim = FILTERS

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(input_dim, FILTERS, WINDOW, padding=WINDOW // 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors; windows over padding count too, as is usual."""
        return self.convolution(tokens.transpose(1, 2)).amax(dim=2).relu()  # type: ignore[no-any-return]


class Bilstm(nn.Module):
    """BiLSTM(100), the average of its states."""

    output_dim = 2 * HIDDEN

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_dim, HIDDEN, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors; with sentences of like length, packing would only cost."""
        real = mask[:, :, None].to(tokens.dtype)
        return (self.lstm(tokens)[0] * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)  # type: ignore[no-any-return]


class ReferenceLoop(nn.Module):
    """Soft patterns on the padded batch, one time step at a time, gradients by autograd.

    Arguments:
        encoder: whose patterns it shares.
    """

    def __init__(self, encoder: SopaEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.output_dim = encoder.get_output_dim()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors: a step of the recurrence for each column of the padded batch."""
        encoder, arcs = self.encoder, self.encoder.arcs
        algebra, encode = encoder.options.algebra, encoder.options.encode
        scores = encode(functional.linear(tokens, arcs.weight, arcs.bias))
        recurrence = Recurrence(encoder.layout, algebra, encode(arcs.epsilon))
        state = recurrence.start(len(tokens))
        best = torch.full_like(state[:, : self.output_dim], algebra.zero)
        for column, real in zip(scores.unbind(dim=1), mask.bool().unbind(dim=1), strict=True):
            state, read, *_ = recurrence.step(state, column)
            best = torch.where(real[:, None], algebra.plus(best, read), best)
        return encoder.document_vector(best, tokens.dtype)  # type: ignore[no-any-return]


class Contender(nn.Module):
    """A classifier of padded batches over frozen word vectors.

    Arguments:
        vectors: of all words, `[words, dim]`.
        encoder: document vectors of `tokens [batch, tokens, dim]` under `mask [batch, tokens]`.
        head: of the classifier; a new one by default.
    """

    def __init__(
        self,
        vectors: Tensor,
        encoder: Convolution | Bilstm | ReferenceLoop,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors)
        self.vectors: Tensor
        self.encoder = encoder
        self.head = head or MlpHead(encoder.output_dim, num_labels=2, hidden_dim=25)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits `[batch, 2]`."""
        tokens = functional.embedding(input_ids, self.vectors)
        return self.head(self.encoder(tokens, attention_mask))  # type: ignore[no-any-return]


def contenders(model: TextClassifier) -> dict[str, Contender]:
    """Every contender over a classifier's word vectors, by name; the loop shares its patterns."""
    vectors, encoder = word_vectors(model), model.encoder
    assert isinstance(encoder, SopaEncoder)
    dim = vectors.shape[1]
    return {
        REFERENCE: Contender(vectors, ReferenceLoop(encoder), model.head),
        CONVOLUTION: Contender(vectors, Convolution(dim)),
        BILSTM: Contender(vectors, Bilstm(dim)),
    }


class Trained:
    """A classifier with its optimizer: makes its batches and takes training steps.

    Arguments:
        model: a `TextClassifier`, or a contender.
        documents: what batches are made of.
        device: where it trains.
        captured: whether its steps are as CUDA graphs have them: on the device alone, batches of
            contenders padded to their longest sentence.
    """

    def __init__(
        self,
        model: TextClassifier | Contender,
        documents: Documents,
        device: str = "cpu",
        captured: bool = False,
    ) -> None:
        self.model = model.to(device).train()  # type: ignore[arg-type]
        self.documents = documents
        self.device = device
        trained = [each for each in model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE, fused=True)
        self.captured: CapturedStep | None = None
        if captured:
            padded = isinstance(model, Contender)
            self.captured = CapturedStep(
                self.model, self.optimizer, documents, BATCH_SIZE, self._learn, padded
            )

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
        if self.captured is not None and self.captured.take(numbers):
            return
        self.loss(self.batch(numbers)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @staticmethod
    def _learn(logits: Tensor, labels: Tensor) -> None:
        functional.cross_entropy(logits, labels).backward()
