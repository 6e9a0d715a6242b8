"""SoPa: a document as the scores of soft patterns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sopa_plugin.encoders import boundary_tokens as boundaries
from sopa_plugin.encoders.packing import Packed, pack
from sopa_plugin.encoders.seq2vec_encoder import PackedSeq2VecEncoder, Seq2VecEncoder
from sopa_plugin.encoders.sopa_arcs import PatternArcs
from sopa_plugin.encoders.sopa_document_vector import DocumentVector, initial_scale, unbounded
from sopa_plugin.encoders.sopa_options import (
    Activation,
    DropoutOn,
    Normalization,
    Output,
    SelfLoops,
    SopaOptions,
    arcs_start_at_half,
    layout_of,
    loops_can_matter,
    problems_of,
)
from sopa_plugin.errors import UserError
from sopa_plugin.wfsa import Arcs, BestMatches, Layout, Semiring, best_matches, document_scores


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
        epsilon_scale: a fixed score that every epsilon's is times'd with (multiplied by, in
            max-product; added, in max-sum).
        self_loop_scale: the same for self-loops of their own.
        bias_scale: what biases are multiplied by before use (released implementation: 0.1).
        boundary_tokens: whether every document is wrapped in (longest pattern - 1) tokens with zero
            vectors on each side, over which matches may run.
        dropout: rate of dropout on arcs, drawn for each row of token vectors and arc.
        dropout_on: `products`: a dropped arc scores a token as it would a zero vector, E(bias), so
            none becomes a sure match; `scores`: the encoded score as the semiring holds it is
            dropped to 0, a sure match in max-product, as in the released implementation.
        output: what becomes of a document's score: `score`, the paper's; `log_score` (max-product
            only); or `excess`, the score less 2^-arcs, that of a path whose arcs score 1/2 each.
            By default `excess` in max-product over sigmoids, whose scores start near that: a head
            that starts from near-constants idles, and may never leave chance. Else `score`.
        output_scale: what the head sees is the output times this. By default, for `excess`, 2 to
            the power of the patterns' mean number of main-path arcs, less 2; else 1.
        normalization: of the document vector: `none`, `layer`, `batch`; by default `layer` where
            no match would be infinite and there are at least two patterns, else `none`.
        activation: of the document vector: `none`, or `relu` as in the `cnn`.

    Raises:
        ValueError: arguments rule one another out (`check_params` says which before building).
    """

    def __init__(
        self,
        input_dim: int,
        patterns: dict[int, int],
        semiring: str = "max_product",
        encoding: str | None = None,
        self_loops: SelfLoops = "state",
        epsilons: bool = True,
        boundary_loops: bool | None = None,
        final_epsilon: bool = True,
        empty_matches: bool = False,
        epsilon_scale: float | None = None,
        self_loop_scale: float | None = None,
        bias_scale: float = 1.0,
        boundary_tokens: bool = False,
        dropout: float = 0.0,
        dropout_on: DropoutOn = "products",
        output: Output | None = None,
        output_scale: float | None = None,
        normalization: Normalization | None = None,
        activation: Activation = "none",
    ) -> None:
        problems = dict(problems_of(locals()))
        if problems:
            raise ValueError("; ".join(f"{key}: {text}" for key, text in problems.items()))
        super().__init__()
        algebra = Semiring.named(semiring)
        encoding = encoding or algebra.default_encoding
        if boundary_loops is None:
            boundary_loops = self_loops != "none" and loops_can_matter(
                semiring, encoding, epsilons, final_epsilon, self_loop_scale
            )
        self.layout = layout_of(
            patterns, self_loops != "none", epsilons, boundary_loops, final_epsilon, empty_matches
        )
        self.options = SopaOptions(
            semiring,
            encoding,
            self_loops,
            epsilon_scale,
            self_loop_scale,
            bias_scale,
            dropout,
            dropout_on,
        )
        self.input_dim = input_dim
        self.boundary_width = self.layout.max_length - 1 if boundary_tokens else 0
        self.arcs = PatternArcs(input_dim, self.layout, self.options)
        if output is None:
            output = "excess" if arcs_start_at_half(semiring, encoding) else "score"
        if normalization is None:
            many = self.layout.num_patterns > 1
            normalization = "layer" if many and unbounded(semiring, output) else "none"
        if output_scale is None:
            output_scale = initial_scale(self.layout.lengths) if output == "excess" else 1.0
        self.document_vector = DocumentVector(
            self.layout.lengths, semiring, output, output_scale, normalization, activation
        )

    @classmethod
    def released(
        cls,
        input_dim: int,
        patterns: dict[int, int],
        semiring: str = "max_product",
        encoding: str | None = None,
        self_loops: SelfLoops = "state",
        epsilons: bool = True,
        epsilon_scale: float | None = None,
        self_loop_scale: float | None = None,
        bias_scale: float = 0.1,
        boundary_tokens: bool = True,
        dropout: float = 0.0,
    ) -> SopaEncoder:
        """The encoder of the authors' released implementation; arguments as for the class.

        No epsilon after the last token, START and END loops, biases times 0.1, documents wrapped in
        zero-vector tokens, raw scores for the head, dropout to sure matches. Its own default
        semiring is `sum_product`; the paper's figures are from `max_product`. Its `eps_scale` and
        `self_loop_scale` are given raw: what is given here is E of them.
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
    def check_params(cls, params: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Combinations of arguments that make no sense, each with the reason."""
        return problems_of(params)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Document vectors `[batch, K]` of `tokens [batch, tokens, input_dim]` under `mask`."""
        if tokens.shape[-1] != self.input_dim:
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
        """Document vectors `[B, K]` of packed documents (see `packing`)."""
        scores = self.pattern_scores(rows, index, offsets)
        return self.document_vector(scores, self.arcs.weight.dtype)  # type: ignore[no-any-return]

    def arc_scores(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Arc scores `[N, R]` of token `rows [N, input_dim]`, and epsilon scores `[Q]`."""
        return self.arcs(rows)  # type: ignore[no-any-return]

    def pattern_scores(self, rows: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        """Document scores `[B, K]` as the semiring holds them, its zero where nothing matches.

        Raises:
            UserError: training in a semiring without gradients.
        """
        if self.training and torch.is_grad_enabled() and not self.options.algebra.differentiable:
            raise UserError(
                f"semiring '{self.options.semiring}' has no gradient, so its patterns cannot be "
                "trained: train with another semiring, or call eval() to score documents"
            )
        return document_scores(*self.operands(rows, index, offsets))

    def best_matches(self, rows: Tensor, index: Tensor, offsets: Tensor) -> BestMatches:
        """The best match of each pattern in each document.

        Positions count boundary tokens, `boundary_width` before each document, where there are any.
        """
        with torch.no_grad():
            return best_matches(*self.operands(rows, index, offsets))

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
        index, offsets = boundaries.wrap(index, offsets, rows.shape[0], self.boundary_width)
        return Packed(functional.pad(rows, (0, 0, 0, 1)), index, offsets)

    def parameter_counts(self) -> dict[str, int]:
        """Parameters of the patterns: `stored`, by the paper's `formula`, and as `released`."""
        return self.arcs.counts()

    def get_input_dim(self) -> int:
        """Dimension of the token vectors."""
        return self.input_dim

    def get_output_dim(self) -> int:
        """K, the number of patterns."""
        return self.layout.num_patterns
