"""SoPa: a document as the scores of soft patterns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from sopa_plugin.encoders.seq2vec_encoder import Packed, PackedSeq2VecEncoder, Seq2VecEncoder, pack
from sopa_plugin.encoders.sopa_layers import (
    Activation,
    BoundaryTokens,
    DocumentVector,
    DropoutOn,
    Normalization,
    Output,
    PatternArcs,
    RulePattern,
    SelfLoops,
    SopaOptions,
    add_boundary_tokens,
    boundary_places,
    is_unbounded,
)
from sopa_plugin.errors import UserError
from sopa_plugin.registry import Bound, NonNegativeFloat, NonNegativeInt, PositiveFloat, Rate
from sopa_plugin.registry.problems import did_you_mean
from sopa_plugin.wfsa import (
    ArcEncoding,
    Arcs,
    BestMatches,
    Layout,
    Semiring,
    best_matches,
    document_scores,
)

States = Annotated[int, Bound(at_least=2)]
"""Number of states of a pattern: START and END, at least."""


@Seq2VecEncoder.register("sopa_released", constructor="released")
@Seq2VecEncoder.register("sopa")
class SopaEncoder(PackedSeq2VecEncoder):
    """Scores how well each of K soft patterns matches a document (paper, section 3).

    Registered as `sopa`; as `sopa_released` with the settings of the authors' released
    implementation (`SopaEncoder.released`). Patterns stand in the document vector by length, the
    shortest first.

    Arguments:
        input_dim: dimension of the token vectors.
        patterns: how many patterns there are of each number of states, `{6: 10, 5: 10}`. A pattern
            of d states tends to match d - 1 tokens.
        semiring: how scores combine: `max_product`, `max_sum`, `sum_product`, `log`, `boolean` (has
            no gradient, so it only evaluates), or a registered one of your own.
        encoding: E in the paper's equations: `sigmoid`, `identity`, `exp`, `log_sigmoid`,
            `positive`, or your own; by default the semiring's usual one.
        self_loops: `none`; `state`: with weights of their own; `shared`: each scores like the
            main-path arc out of its state, times a learned scale.
        epsilons: whether a state may be passed without consuming a token, at most one between two
            tokens.
        boundary_loops: whether START and END have self-loops too, by default where they can change
            the score of a pattern of three states or more (`loops_can_matter`).
        final_epsilon: whether an epsilon may be taken after the last token of a match.
        empty_matches: whether a two-state pattern may match no token at all (Eq. 7-8 literally).
        epsilon_scale: a fixed score that every epsilon's is combined with (multiplied by, in
            max-product; added, in max-sum).
        self_loop_scale: the same for self-loops of their own.
        bias_scale: what biases are multiplied by before use (released implementation: 0.1).
        boundary_tokens: whether every document is wrapped in (longest pattern - 1) tokens with zero
            vectors on each side, over which matches may run; or `marked`: in one on each side, with
            unit vectors of their own, so that patterns can tell how documents begin and end.
        dropout: rate of dropout on arcs, drawn for each row of token vectors and arc.
        dropout_on: `products`: a dropped arc scores a token as it would a zero vector, E(bias), so
            none becomes a sure match; `scores`: the encoded score as the semiring holds it is
            dropped to 0, a sure match in max-product, as in the released implementation.
        output: what becomes of a document's score: `score`, the paper's; `log_score` (max-product
            only); `excess`, the score less 2^-arcs, that of a path whose arcs score 1/2 each; or
            `relative`, the score as a multiple of that of a path whose arcs score as they start,
            rarely (`sopa_layers.RARE_BIAS`), in log space less it. By default `excess` in
            max-product over sigmoids, whose scores start near that: a head that starts from
            near-constants idles, and may never leave chance; `relative` in sum-product and in log
            space over sigmoids, whose scores would else be near a multiple of the document's
            length. Else `score`.
        output_scale: what the head sees is the output times this. By default, for `excess`, 2 to
            the power of the patterns' mean number of main-path arcs, less 2; else 1.
        normalization: of the document vector: `none`, `layer`, `batch`; by default `layer` where
            no match would be infinite, and over sums, which grow with the document, if there are
            at least two patterns; else `none`.
        activation: of the document vector: `none`, or `relu` as in the `cnn`.
        rules: patterns that rules became, beside the `patterns`, which are free; handed over where
            the model has rules. Every document then stands between two tokens, with vectors of
            their own: 1 in the last dimension but one before it, in the last one after it.

    Raises:
        ValueError: arguments rule one another out (`check_params` says which before building).
    """

    handed_over: ClassVar[frozenset[str]] = Seq2VecEncoder.handed_over | {"rules"}

    def __init__(
        self,
        input_dim: int,
        patterns: dict[States, NonNegativeInt],
        semiring: str = "max_product",
        encoding: str | None = None,
        self_loops: SelfLoops = "state",
        epsilons: bool = True,
        boundary_loops: bool | None = None,
        final_epsilon: bool = True,
        empty_matches: bool = False,
        epsilon_scale: float | None = None,
        self_loop_scale: float | None = None,
        bias_scale: NonNegativeFloat = 1.0,
        boundary_tokens: BoundaryTokens = False,
        dropout: Rate = 0.0,
        dropout_on: DropoutOn = "products",
        output: Output | None = None,
        output_scale: PositiveFloat | None = None,
        normalization: Normalization | None = None,
        activation: Activation = "none",
        rules: Sequence[RulePattern] = (),
    ) -> None:
        problems = dict(self.check_params(locals()))
        if problems:
            raise ValueError("; ".join(f"{key}: {text}" for key, text in problems.items()))
        super().__init__()
        encoding = encoding or Semiring.named(semiring).default_encoding
        if boundary_loops is None:
            boundary_loops = self_loops != "none" and loops_can_matter(
                semiring, encoding, epsilons, final_epsilon, self_loop_scale
            )
        free = [int(length) for length, count in patterns.items() for _ in range(count)]
        ascending = sorted(
            [*((length, None) for length in free), *((r.states, r) for r in rules)],
            key=lambda each: each[0],
        )
        lengths = tuple(length for length, _ in ascending)
        if not lengths:
            raise ValueError("patterns: expected at least one, as {states: number of patterns}")
        self.rules = tuple(rule for _, rule in ascending)
        self.layout = Layout(
            lengths, self_loops != "none", epsilons, boundary_loops, final_epsilon, empty_matches
        )
        if output is None:
            output = usual_output(semiring, encoding)
        self.options = SopaOptions(
            semiring,
            encoding,
            self_loops,
            epsilon_scale,
            self_loop_scale,
            bias_scale,
            dropout,
            dropout_on,
            rare=output == "relative",
        )
        self.input_dim = input_dim
        self.marked = boundary_tokens == "marked" or bool(rules)
        wide = boundary_tokens and not self.marked
        self.boundary_width = self.layout.max_length - 1 if wide else int(self.marked)
        self.arcs = PatternArcs(input_dim, self.layout, self.options)
        if normalization is None:
            varies = output == "relative" or is_unbounded(semiring, output)
            normalization = "layer" if varies and len(lengths) > 1 else "none"
        if output_scale is None:
            output_scale = initial_scale(tuple(free)) if output == "excess" and free else 1.0
        self.document_vector = DocumentVector(
            lengths, semiring, output, output_scale, normalization, activation, self.rules
        )

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """With encodings of this library, without rules and shared self-loops, which look up
        columns by lists."""
        own = type(ArcEncoding.named(self.options.encoding)).__module__.startswith("sopa_plugin.")
        return own and not self.arcs.shared and not any(self.rules)

    @classmethod
    def as_saved(cls, params: Mapping[str, Any], version: str) -> dict[str, Any]:
        """Up to version 0.1, the default `output` of sums was `score`."""
        sums = params.get("semiring") in ("sum_product", "log")
        former = version.startswith("0.1.") and sums and params.get("output") is None
        return {**params, "output": "score"} if former else dict(params)

    @classmethod
    def released(
        cls,
        input_dim: int,
        patterns: dict[States, NonNegativeInt],
        semiring: str = "max_product",
        encoding: str | None = None,
        self_loops: SelfLoops = "state",
        epsilons: bool = True,
        epsilon_scale: float | None = None,
        self_loop_scale: float | None = None,
        bias_scale: NonNegativeFloat = 0.1,
        boundary_tokens: BoundaryTokens = True,
        dropout: Rate = 0.0,
    ) -> SopaEncoder:
        """The encoder of the authors' released implementation; arguments as for the class.

        No epsilon after the last token, START and END loops, biases times 0.1, documents wrapped in
        zero-vector tokens, raw scores for the head, dropout to sure matches. Its own default
        semiring is `sum_product`; the paper's figures are from `max_product`. Its `eps_scale` and
        `self_loop_scale` are given raw: what is given here is E of them. Where there are no
        boundary tokens, a document without a match gets a learned value in max-sum, -100 there.
        """
        return cls(
            input_dim,
            patterns,
            semiring,
            encoding,
            self_loops,
            epsilons,
            boundary_loops=self_loops != "none",
            final_epsilon=False,
            epsilon_scale=epsilon_scale,
            self_loop_scale=self_loop_scale,
            bias_scale=bias_scale,
            boundary_tokens=boundary_tokens,
            dropout=dropout,
            dropout_on="scores",
            output="score",
            output_scale=1.0,
            normalization="none",
        )

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Combinations of arguments that make no sense, each with the reason."""
        for key, kind in (("semiring", Semiring), ("encoding", ArcEncoding)):
            name, known = params.get(key), kind.list_available()
            if name is not None and name not in known:
                advice = "; ".join(filter(None, [", ".join(known), did_you_mean(name, known)]))
                yield key, f"no {key} is called '{name}': expected one of {advice}"
                return
        yield from _semiring_problems(params)
        yield from _option_problems(params)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, K]` of `tokens [batch, tokens, input_dim]` under `mask`."""
        if tokens.dim() == 3 and tokens.shape[2] != self.input_dim:
            raise ValueError(
                f"tokens: expected [batch, tokens, {self.input_dim}], found {list(tokens.shape)}"
            )
        packed = pack(tokens, mask)
        # Only real tokens: what stands in the padding cannot even spoil a gradient.
        rows = packed.rows[packed.index]
        return self.forward_packed(
            rows, torch.arange(rows.shape[0], device=rows.device), packed.offsets
        )

    def forward_packed(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """Document vectors `[B, K]` of packed documents (see `Packed`)."""
        scores = self.pattern_scores(rows, index, offsets)
        return self.document_vector(scores, self.arcs.weight.dtype)  # type: ignore[no-any-return]

    def arc_scores(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Arc scores `[N, R]` of token `rows [N, input_dim]`, and epsilon scores `[Q]`."""
        return self.arcs(rows)  # type: ignore[no-any-return]

    def pattern_scores(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """Document scores `[B, K]` as the semiring holds them, its zero where nothing matches.

        Raises:
            UserError: training in a semiring, or with an encoding, without gradients.
        """
        if self.training and torch.is_grad_enabled():
            self.require_gradient()
        return document_scores(*self.operands(rows, index, offsets))

    def require_gradient(self) -> None:
        """Raises `UserError` for a semiring or an encoding without gradients."""
        for key, problem in self.gradient_problems(vars(self.options)):
            advice = f"train with another {key}, or call eval() to score documents"
            raise UserError(f"{problem}: {advice}")

    @classmethod
    def gradient_problems(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Which of these arguments patterns cannot be trained with, and why."""
        semiring = Semiring.named(name := params["semiring"])
        usual = params["encoding"] or semiring.default_encoding
        parts = (("semiring", name, semiring), ("encoding", usual, ArcEncoding.named(usual)))
        for key, name, part in parts:
            if not part.differentiable:
                yield key, f"{key} '{name}' has no gradient, so its patterns cannot be trained"
                return

    def best_matches(self, rows: Tensor, index: Tensor, offsets: Tensor) -> BestMatches:
        """The best match of each pattern in each document.

        Positions count boundary tokens, `boundary_width` before each document, where there are any.
        """
        with torch.no_grad():
            return best_matches(*self.operands(rows, index, offsets))

    def least_tokens(self) -> list[int]:
        """How many tokens a document has at least that each pattern can match, `[K]`."""
        layout = self.layout
        # before each token, and after the last, an epsilon may take the place of another
        final = int(layout.epsilons and layout.final_epsilon)
        per_token = 2 if layout.epsilons else 1
        least = (max(1, -(-(length - 1 - final) // per_token)) for length in layout.lengths)
        empty = (layout.empty_matches and length == 2 for length in layout.lengths)
        tokens = (0 if none else count for count, none in zip(least, empty, strict=True))
        return [max(0, count - 2 * self.boundary_width) for count in tokens]

    def operands(self, rows: Tensor, index: Tensor, offsets: Tensor) -> tuple[Layout, str, Arcs]:
        """What every function of `sopa_plugin.wfsa` over packed documents takes.

        `k_best_matches(*encoder.operands(rows, index, offsets), k=3)`.
        """
        rows, index, offsets = self.wrap(rows, index, offsets)
        scores, epsilon = self.arc_scores(rows)
        return self.layout, self.options.semiring, Arcs(scores, index, offsets, epsilon)

    def wrap(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Packed:
        """The documents with their boundary tokens; as they are where there are none."""
        if not self.boundary_width:
            return Packed(rows, index, offsets)
        boundaries = self.boundary_rows(rows)
        places = boundary_places(rows.shape[0] + len(boundaries), len(boundaries))
        index, offsets = add_boundary_tokens(index, offsets, places, self.boundary_width)
        return Packed(torch.cat([rows, boundaries]), index, offsets)

    def boundary_rows(self, like: Tensor) -> Tensor:
        """The vectors of boundary tokens, `[1, input_dim]`, or 2 where they differ.

        Of the type of `like`, and where that is.
        """
        rows = like.new_zeros(self.num_boundary_rows, self.input_dim)
        if any(self.rules):
            rows[:, -2:] = torch.eye(2).to(rows)
        elif self.marked:
            # opposite signs in every other dimension, as far from words as a random direction
            rows += self.input_dim**-0.5
            rows[1, 1::2] *= -1
        return rows

    @property
    def num_boundary_rows(self) -> int:
        """How many different boundary tokens there are."""
        return 2 if self.marked else int(self.boundary_width > 0)

    def parameter_counts(self) -> dict[str, int]:
        """Parameters of the patterns: `stored`, by the paper's `formula`, and as `released`.

        Also how many `states` they have.
        """
        return {**self.arcs.counts(), "states": self.layout.num_states}

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """K, the number of patterns."""
        return self.layout.num_patterns

    def extra_repr(self) -> str:
        """Its sizes, its patterns as `{states: how many}`, and how arcs are scored."""
        patterns = dict(Counter(self.layout.lengths))
        scored = f"semiring={self.options.semiring}, encoding={self.options.encoding}"
        return f"{super().extra_repr()}, patterns={patterns}, {scored}"


def loops_can_matter(
    semiring: str, encoding: str, epsilons: bool, final_epsilon: bool, self_loop_scale: float | None
) -> bool:
    """Whether a START or END loop can change the score of a pattern of three states or more.

    Where only the best path counts and no loop adds to a score, a match that starts afresh is never
    worse than one that looped at START, nor one that ends at once than one that loops at END,
    unless END was reached by an epsilon that may not end a match. (In a two-state pattern, a loop
    and an epsilon together match any word at all without its main path, a floor under every
    document like the empty match's; that is no reason to have them.)
    """
    algebra = Semiring.named(semiring)
    one = 1.0 if algebra.logarithms else algebra.one
    costs = ArcEncoding.named(encoding).at_most_one and (
        self_loop_scale is None or self_loop_scale <= one
    )
    return not (algebra.selects and costs and (final_epsilon or not epsilons))


def usual_output(semiring: str, encoding: str) -> Output:
    """The `output` by default."""
    usual: dict[tuple[str, str], Output] = {
        ("max_product", "sigmoid"): "excess",
        ("sum_product", "sigmoid"): "relative",
        ("log", "log_sigmoid"): "relative",
    }
    return usual.get((semiring, encoding), "score")


def initial_scale(lengths: tuple[int, ...]) -> float:
    """What brings the excess of scores to the size at which heads learn: a fourth of 2^arcs.

    Measured on SST and ROC: scores as they are leave some runs at chance, and so does a larger
    scale at high learning rates.
    """
    arcs = sum(lengths) / len(lengths) - 1
    return float(2.0 ** min(arcs - 2, 20))  # a million will do for longer patterns


def _semiring_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What does not go with the semiring and the encoding."""
    name = params["semiring"]
    semiring = Semiring.named(name)
    usual = params.get("encoding") or semiring.default_encoding
    encoding = ArcEncoding.named(usual)
    kinds = {each: ArcEncoding.named(each).kind for each in ArcEncoding.list_available()}
    if encoding.kind not in semiring.accepts:
        fitting = ", ".join(each for each, kind in kinds.items() if kind in semiring.accepts)
        taken = f"does not take encoding '{usual}': {semiring.reason}"
        yield "encoding", f"semiring '{name}' {taken}; expected one of {fitting}"
    output = params.get("output")
    if output == "log_score" and not semiring.logarithms:
        advice = "take output 'score' (semiring 'log' gives the logarithm of sum_product's)"
        yield "output", f"semiring '{name}' gives no logarithms of its scores; {advice}"
    if output in ("excess", "relative") and output != usual_output(name, usual):
        start = f"'{output}' is over the score of arcs as they start"
        fitting = {
            "excess": "it goes with semiring 'max_product' and encoding 'sigmoid'",
            "relative": "it goes with semiring 'sum_product' and encoding 'sigmoid', or with 'log' "
            "and 'log_sigmoid'",
        }[output]
        yield "output", f"{start}: {fitting}; take output 'score'"
    is_truth = semiring.accepts == {"truth"}
    # Weights are positive, log-weights of either sign.
    for key in ("epsilon_scale", "self_loop_scale"):
        scale = params.get(key)
        if scale is None:
            continue
        if not math.isfinite(scale):
            yield key, f"expected a finite number, found {scale}"
        elif semiring.logarithms and scale <= 0:
            yield key, f"scores are multiplied by it: expected a number above 0, found {scale}"
        elif is_truth and scale not in (0, 1):
            expected = "has true and false alone: expected 1 or 0"
            yield key, f"semiring '{name}' {expected}, found {scale}"
        elif encoding.kind != "log_weight" and scale < 0:
            expected = "scores are multiplied by it, and none is below 0: expected at least 0"
            yield key, f"{expected}, found {scale}"
    if is_truth and params.get("dropout") and params.get("dropout_on") == "scores":
        larger = "and dropout on scores makes those that it keeps larger than true"
        advice = "take dropout_on 'products', or dropout 0"
        yield "dropout_on", f"semiring '{name}' has true and false alone, {larger}; {advice}"


def _option_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that rule one another out in every semiring."""
    loops, epsilons = params.get("self_loops", "state"), params.get("epsilons", True)
    if loops == "none" and params.get("boundary_loops"):
        yield "boundary_loops", "START and END loops are self-loops, and self_loops is 'none'"
    if loops != "state" and params.get("self_loop_scale") is not None:
        yield "self_loop_scale", f"it scales self-loops of their own; self_loops is '{loops}'"
    if not epsilons and params.get("epsilon_scale") is not None:
        yield "epsilon_scale", "there are no epsilons to scale: epsilons is false"
    if params.get("empty_matches") and not (epsilons and params.get("final_epsilon", True)):
        reason = "a match of no token is an epsilon from START to END"
        yield "empty_matches", f"{reason}: it needs epsilons and final_epsilon"
    if params.get("normalization") == "layer" and sum(params["patterns"].values()) == 1:
        yield "normalization", "layer normalization over a single pattern leaves nothing"
