"""The parts of the SoPa encoder: arc scores from token vectors, document vectors from scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.wfsa import ArcEncoding, Layout, Semiring, arc_products
from sopa_plugin.wfsa.layout import patterns_of_rules
from sopa_plugin.wfsa.operator import at_least_float32

SelfLoops = Literal["none", "state", "shared"]
DropoutOn = Literal["products", "scores"]
BoundaryTokens = bool | Literal["marked"]
Output = Literal["score", "log_score", "excess", "relative"]
Normalization = Literal["none", "layer", "batch"]
Activation = Literal["none", "relu"]

INITIAL_BIAS = 0.1
"""Standard deviation of initial biases as they count in an arc's score, as in the released code."""

RARE_WEIGHT, RARE_BIAS = 4.0, -4.0
"""Length of initial weights, and mean of initial biases and epsilons, where an encoder's output is
`relative`. Of arcs near 1/2, as elsewhere, sums over all paths tell little but a document's length.
Measured on SST and Amazon, 500 texts and all: lower dev losses than biases of 0 or -2 and lengths
of 1; lengths of 8 are as good, of 16 and biases of -6 worse."""

LOG_RARE = -math.log1p(math.exp(-RARE_BIAS))
"""Log sigmoid of that bias, the score of an arc that starts so."""

FIRES = math.exp(-2)
"""Share of a sure match's score from which on a rule's pattern fires: 49 words that are there leave
more, one that is not there less."""


class RulePattern(NamedTuple):
    """A pattern that a rule became; see `sopa_plugin.rules`.

    Attributes:
        name: of the pattern, after its rule.
        states: how many it has.
        rule: number of the rule; of the patterns of one rule only the best counts. -1 is of the
            pattern that matches any word and counts as far as no rule does.
        sure: the score of a match that meets the rule, before anything is learned.
    """

    name: str
    states: int
    rule: int
    sure: float


def add_boundary_tokens(
    index: Tensor, offsets: Tensor, rows: tuple[int, int], width: int
) -> tuple[Tensor, Tensor]:
    """Puts `width` tokens before and after each packed document, with the vectors of two `rows`.

    `index [M]` and `offsets [B + 1]` (see `Packed`) become `[M + 2·width·B]` and `[B + 1]`.
    """
    batch = offsets.shape[0] - 1
    documents = torch.arange(batch + 1, device=offsets.device)
    # shape: [tokens]; the document that each token belongs to
    document = torch.searchsorted(
        offsets[1:].contiguous(), torch.arange(index.shape[0], device=index.device), right=True
    )
    # those of no document, behind the last one, stay behind it
    shifts = width * (2 * document + 1).clamp(max=2 * batch)
    places = torch.arange(index.shape[0], device=index.device) + shifts
    wrapped = index.new_full((index.shape[0] + 2 * width * batch,), rows[0]).scatter(
        0, places, index
    )
    bounds = offsets + 2 * width * documents
    if rows[1] != rows[0]:
        for back in range(1, width + 1):
            wrapped[bounds[1:] - back] = rows[1]
    return wrapped, bounds


def boundary_places(num_rows: int, num_boundary_rows: int) -> tuple[int, int]:
    """Which of so many rows, boundary tokens last, stand before and after a document."""
    return num_rows - num_boundary_rows, num_rows - 1


@dataclass(frozen=True)
class SopaOptions:
    """How arcs are scored; see `SopaEncoder`, whose arguments these are.

    `rare` says whether arcs score low before training (`RARE_BIAS`).
    """

    semiring: str
    encoding: str
    self_loops: SelfLoops
    epsilon_scale: float | None
    self_loop_scale: float | None
    bias_scale: float
    dropout: float
    dropout_on: DropoutOn
    rare: bool = False

    @property
    def algebra(self) -> Semiring:
        """The semiring itself."""
        return Semiring.named(self.semiring)

    def encode(self, raw: Tensor) -> Tensor:
        """Scores as the semiring holds them, at least in float32, from raw ones."""
        raw = at_least_float32(raw)
        encoding = ArcEncoding.named(self.encoding)
        return encoding.encode_log(raw) if self.algebra.logarithms else encoding.encode(raw)

    @property
    def is_log_sigmoid(self) -> bool:
        """Whether that is the log sigmoid, which fast code knows."""
        return self.encoding == ("sigmoid" if self.algebra.logarithms else "log_sigmoid")

    def times_fixed(self, scores: Tensor, fixed: float | None) -> Tensor:
        """`scores` times a fixed score, by the semiring's `times`, if there is one."""
        if fixed is None:
            return scores
        value = math.log(fixed) if self.algebra.logarithms else fixed
        return self.algebra.times(scores, scores.new_full((), value))


class PatternArcs(nn.Module):
    """Scores of every arc of every pattern for a token (paper, Eq. 3-4).

    `weight [arcs, input_dim]` and `bias [arcs]` hold the main path, then the self-loops, in the
    order of the layout's R; `epsilon [Q]`. Shared self-loops have no weights of their own but
    a learned scale each, `self_loop_scale`; the END loop, with no main-path arc to share, keeps its
    own weights. Weights start as random directions of unit length, biases small, epsilons standard
    normal, shared scales standard normal; where arcs start `rare`, weights longer, biases and
    epsilons lower.

    Arguments:
        input_dim: dimension of the token vectors.
        layout: the patterns.
        options: the encoder's options.
    """

    def __init__(self, input_dim: int, layout: Layout, options: SopaOptions) -> None:
        super().__init__()
        self.layout = layout
        self.options = options
        self.num_main = layout.num_states - layout.num_patterns
        num_loops = layout.num_scores - self.num_main
        self.shared = options.self_loops == "shared" and num_loops > 0
        self.num_arcs = layout.num_scores
        if self.shared:
            self.loop_sources = self._loop_sources()
            self.num_arcs = max(self.num_main, *(source + 1 for source in self.loop_sources))
            self.self_loop_scale = nn.Parameter(torch.empty(num_loops))
        self.weight = nn.Parameter(torch.empty(self.num_arcs, input_dim))
        self.bias = nn.Parameter(torch.empty(self.num_arcs))
        self.epsilon = nn.Parameter(torch.empty(layout.num_epsilons))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws initial values."""
        length, bias = (RARE_WEIGHT, RARE_BIAS) if self.options.rare else (1.0, 0.0)
        bias_scale = self.options.bias_scale or 1.0
        with torch.no_grad():
            self.weight.copy_(functional.normalize(torch.randn_like(self.weight), dim=1) * length)
            nn.init.normal_(self.bias, bias / bias_scale, INITIAL_BIAS / bias_scale)
            nn.init.normal_(self.epsilon, bias)
            if self.shared:
                nn.init.normal_(self.self_loop_scale)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Scores `[N, R]` of `rows [N, input_dim]`, and of epsilons `[Q]`, for the semiring."""
        options = self.options
        rows = rows.to(self.weight.dtype)
        bias = self.bias * options.bias_scale
        rate = options.dropout if self.training else 0.0
        on_products = rate if options.dropout_on == "products" else 0.0
        scores = arc_products(
            options.semiring, rows, self.weight, bias, options.is_log_sigmoid, on_products
        )
        scores = scores if options.is_log_sigmoid else options.encode(scores)
        if rate and options.dropout_on == "scores":
            scores = functional.dropout(scores, rate)
        epsilon = options.times_fixed(options.encode(self.epsilon), options.epsilon_scale)
        if not self.shared and options.self_loop_scale is None:
            return scores, epsilon
        # shape: [N, R]; with the loops that share weights, and scales
        main, loops = scores[:, : self.num_main], scores[:, self.num_main :]
        if self.shared:
            scale = options.encode(self.self_loop_scale)
            loops = options.algebra.times(scores[:, self.loop_sources], scale)
        loops = options.times_fixed(loops, options.self_loop_scale)
        return torch.cat([main, loops], dim=1), epsilon

    def counts(self) -> dict[str, int]:
        """Numbers of parameters: `stored` here; by the paper's `formula`, (2e + 3)·Σd; and as the
        `released` implementation counts them, every pattern padded to the longest."""
        layout, e = self.layout, self.weight.shape[1]
        padded = layout.num_patterns * layout.max_length
        diagonals = 2 if self.options.self_loops == "state" else 1
        epsilons = layout.num_patterns * (layout.max_length - 1) if layout.epsilons else 0
        scales = padded if self.options.self_loops == "shared" else 0
        return {
            "stored": sum(parameter.numel() for parameter in self.parameters()),
            "formula": (2 * e + 3) * layout.num_states,
            "released": diagonals * padded * (e + 1) + epsilons + scales,
        }

    def _loop_sources(self) -> list[int]:
        """For each self-loop, the main-path arc out of its state; END loops come after those."""
        layout, sources, own = self.layout, [], self.num_main
        for i, loop in enumerate(layout.loops):
            for pattern in range(loop.first_pattern, layout.num_patterns) if loop else ():
                if layout.lengths[pattern] == i + 1:
                    sources.append(own)
                    own += 1
                else:
                    sources.append(layout.main_path[i].origin + pattern)
        return sources


def is_unbounded(semiring: str, output: Output) -> bool:
    """Whether no match has an infinite score: in log space, and in max-sum."""
    algebra = Semiring.named(semiring)
    zero = torch.tensor(algebra.zero, device="cpu")  # also while a model is built on meta
    return math.isinf(zero if output == "log_score" else algebra.to_score(zero))


class DocumentVector(nn.Module):
    """Finite, well-scaled document vectors from the operator's document scores.

    Where no match has an infinite score (`is_unbounded`), each pattern has a learned value for it,
    `no_match [K]`, which starts one unit below 0 for each arc of the main path: lower than typical
    matches. It is put in before any normalization.

    Arguments:
        lengths: number of states of each pattern.
        semiring: the registered name of the semiring.
        output: `score`; `log_score` where the semiring holds logarithms; `excess`, the score
            less that of a path whose arcs score 1/2 each; or `relative`, the score over that of a
            path whose arcs score as they start, in log space less it.
        scale: what the output is multiplied by, before any normalization.
        normalization: `none`; `layer`: over the patterns of a document; `batch`: over the documents
            of a batch (their running mean and variance in evaluation, and for a batch of one).
        activation: `relu`, after normalization, or `none`.
        rules: the rule that each pattern is of, None for one that is free. A rule's patterns have
            their scores as shares of a sure match's; of several, all but the best have 0.
    """

    def __init__(
        self,
        lengths: tuple[int, ...],
        semiring: str,
        output: Output,
        scale: float,
        normalization: Normalization,
        activation: Activation,
        rules: Sequence[RulePattern | None] = (),
    ) -> None:
        super().__init__()
        self.rules = rules or (None,) * len(lengths)
        of_rules = patterns_of_rules([rule and rule.rule for rule in self.rules])
        self.otherwise = of_rules.pop(-1, [])
        self.of_rules = [pattern for patterns in of_rules.values() for pattern in patterns]
        self.rivals = [patterns for patterns in of_rules.values() if len(patterns) > 1]
        self.lengths = lengths
        self.semiring = semiring
        self.output = output
        self.scale = scale
        self.activation = activation
        unbounded = is_unbounded(semiring, output)
        self.no_match = nn.Parameter(torch.empty(len(lengths))) if unbounded else None
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
        if any(self.rules):
            values = self._of_rules(values)
        if any(self.halves):
            values = values - self._constants(values, self.halves)
        if self.no_match is not None:
            no_match = self.no_match.to(values.dtype)
            values = torch.where(scores == algebra.zero, no_match, values)
        values = values.to(dtype)
        vectors: Tensor = self.norm(values * self._scales(values))
        return vectors.relu() if self.activation == "relu" else vectors

    def of_zero(self) -> Tensor:
        """What a score of 0 is to the head, `[K]`; with normalization, 0 all the same."""
        if self.output != "excess" or not isinstance(self.norm, nn.Identity):
            return torch.zeros(len(self.lengths))
        values = torch.tensor(self.halves)
        values = values * -self._scales(values)
        return values.relu() if self.activation == "relu" else values

    def _of_rules(self, values: Tensor) -> Tensor:
        """`values [B, K]` with those of rules as shares of a sure match's, 0 for all but the best
        pattern of a rule."""
        values = values / values.new_tensor(self.sure)
        for patterns in self.rivals:
            some = values[:, patterns]
            best = functional.one_hot(some.argmax(dim=1), len(patterns)).to(some.dtype)
            values = values.index_copy(1, torch.tensor(patterns, device=values.device), some * best)
        for place in self.otherwise:
            none = 1 - values[:, self.of_rules].amax(dim=1, keepdim=True).clamp(max=1)
            values = torch.cat([values[:, :place], none, values[:, place + 1 :]], dim=1)
        return values

    @cached_property
    def halves(self) -> list[float]:
        """What is subtracted of each free pattern's score: that of a path as arcs start, if any."""
        pairs = zip(self.lengths, self.rules, strict=True)
        if self.output == "relative" and self.no_match is not None:
            return [(length - 1) * LOG_RARE for length in self.lengths]
        excess = self.output == "excess"
        return [math.exp2(1 - length) if excess and not rule else 0.0 for length, rule in pairs]

    @cached_property
    def scales(self) -> list[float]:
        """What each pattern's output is multiplied by."""
        divided = LOG_RARE if self.output == "relative" and self.no_match is None else 0.0
        pairs = zip(self.lengths, self.rules, strict=True)
        # beyond 80, long patterns' would be infinite
        factors = ((math.exp(min((1 - length) * divided, 80)), rule) for length, rule in pairs)
        return [1.0 if rule else self.scale * factor for factor, rule in factors]

    @property
    def sure(self) -> list[float]:
        """Scores of sure matches of rules' patterns, 1 for a free one."""
        return [rule.sure if rule else 1.0 for rule in self.rules]

    def _scales(self, values: Tensor) -> Tensor | float:
        """The same as one number where they are the same."""
        scales = self.scales
        return self._constants(values, scales) if len({*scales}) > 1 else scales[0]

    def _constants(self, like: Tensor, numbers: Sequence[float]) -> Tensor:
        """`numbers` of patterns as a tensor.

        Without rules they change with the number of states alone, and none is copied from the host,
        as no CUDA graph could hold it.
        """
        if any(self.rules):
            return like.new_tensor(numbers)
        runs = [(number, len([*run])) for number, run in groupby(numbers)]
        return torch.cat([like.new_full((count,), number) for number, count in runs])


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization that takes a batch of one by its running statistics."""

    def forward(self, values: Tensor) -> Tensor:
        """Normalized `values [B, K]`."""
        if not self.training or values.shape[0] > 1:
            return super().forward(values)
        mean, variance = self.running_mean, self.running_var
        return functional.batch_norm(values, mean, variance, self.weight, self.bias, eps=self.eps)
