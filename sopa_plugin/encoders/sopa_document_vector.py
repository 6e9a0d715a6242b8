"""From document scores to what the classifier sees."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sopa_plugin.encoders.sopa_options import Activation, Normalization, Output
from sopa_plugin.wfsa import Semiring


def unbounded(semiring: str, output: Output) -> bool:
    """Whether no match has an infinite score: in log space, and in max-sum."""
    algebra = Semiring.named(semiring)
    zero = torch.tensor(algebra.zero, device="cpu")  # also while a model is built on meta
    return math.isinf(zero if output == "log_score" else algebra.to_score(zero))


def initial_scale(lengths: tuple[int, ...]) -> float:
    """What brings the excess of scores to the size at which heads learn: a fourth of 2^arcs.

    Measured on SST and ROC: scores as they are leave some runs at chance, and so does a larger
    scale at high learning rates.
    """
    arcs = sum(lengths) / len(lengths) - 1
    return float(2.0 ** min(arcs - 2, 20))  # a million will do for longer patterns


class DocumentVector(nn.Module):
    """Finite, well-scaled document vectors from the operator's document scores.

    Where no match has an infinite score (`unbounded`), each pattern has a learned value for it,
    `no_match [K]`, which starts one unit below 0 for each arc of the main path: lower than typical
    matches. It is put in before any normalization.

    Arguments:
        lengths: number of states of each pattern.
        semiring: the registered name of the semiring.
        output: `score`; `log_score` where the semiring holds logarithms; or `excess`, the score
            less that of a path whose arcs score 1/2 each.
        scale: what the output is multiplied by, before any normalization.
        normalization: `none`; `layer`: over the patterns of a document; `batch`: over the documents
            of a batch (their running mean and variance in evaluation, and for a batch of one).
        activation: `relu`, after normalization, or `none`.
    """

    def __init__(
        self,
        lengths: tuple[int, ...],
        semiring: str,
        output: Output,
        scale: float,
        normalization: Normalization,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.lengths = lengths
        self.semiring = semiring
        self.output = output
        self.scale = scale
        self.activation = activation
        if unbounded(semiring, output):
            self.no_match: nn.Parameter | None = nn.Parameter(torch.empty(len(lengths)))
        else:
            self.register_parameter("no_match", None)
        norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": BatchNorm}
        self.norm = norms[normalization](len(lengths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets initial values."""
        if self.no_match is not None:
            with torch.no_grad():
                self.no_match.copy_(1.0 - torch.tensor(self.lengths))
        if not isinstance(self.norm, nn.Identity):
            self.norm.reset_parameters()

    def forward(self, scores: Tensor, dtype: torch.dtype) -> Tensor:
        """Document vectors `[B, K]` of type `dtype` from the operator's `scores [B, K]`."""
        algebra = Semiring.named(self.semiring)
        values = scores if self.output == "log_score" else algebra.to_score(scores)
        if self.output == "excess":
            values = values - values.new_tensor(self._halves)
        if self.no_match is not None:
            no_match = self.no_match.to(values.dtype)
            values = torch.where(scores == algebra.zero, no_match, values)
        vectors: Tensor = self.norm(values.to(dtype) * self.scale)
        return vectors.relu() if self.activation == "relu" else vectors

    def of_zero(self) -> Tensor:
        """What a score of 0 is to the head, `[K]`; with normalization, 0 all the same."""
        if self.output != "excess" or not isinstance(self.norm, nn.Identity):
            return torch.zeros(len(self.lengths))
        values = torch.tensor(self._halves) * -self.scale
        return values.relu() if self.activation == "relu" else values

    @property
    def _halves(self) -> list[float]:
        """Each pattern's score of a path whose arcs score 1/2."""
        return [math.exp2(1 - length) for length in self.lengths]


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization that takes a batch of one by its running statistics."""

    def forward(self, values: Tensor) -> Tensor:
        """Normalized `values [B, K]`."""
        if not self.training or values.shape[0] > 1:
            return super().forward(values)
        return nn.functional.batch_norm(
            values,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            False,
            0.0,
            self.eps,
        )
