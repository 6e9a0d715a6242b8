"""The learned part of soft patterns: arc scores from token vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.encoders.sopa_options import SopaOptions
from sopa_plugin.wfsa import Layout, arc_products

INITIAL_BIAS = 0.1
"""Standard deviation of initial biases as they count in an arc's score, as in the released code."""


class PatternArcs(nn.Module):
    """Scores of every arc of every pattern for a token (paper, Eq. 3-4).

    `weight [arcs, input_dim]` and `bias [arcs]` hold the main path, then the self-loops, in the
    order of the layout's R; `epsilon [Q]`. Shared self-loops have no weights of their own but
    a learned scale each, `self_loop_scale`; the END loop, with no main-path arc to share, keeps its
    own weights. Weights start as random directions of unit length, biases small, epsilons standard
    normal, shared scales standard normal.

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
            sources = self._loop_sources()
            self.num_arcs = max(self.num_main, *(source + 1 for source in sources))
            self.loop_sources = sources
            self.self_loop_scale = nn.Parameter(torch.empty(num_loops))
        self.weight = nn.Parameter(torch.empty(self.num_arcs, input_dim))
        self.bias = nn.Parameter(torch.empty(self.num_arcs))
        self.epsilon = nn.Parameter(torch.empty(layout.num_epsilons))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws initial values."""
        with torch.no_grad():
            self.weight.copy_(functional.normalize(torch.randn_like(self.weight), dim=1))
            nn.init.normal_(self.bias, std=INITIAL_BIAS / (self.options.bias_scale or 1.0))
            nn.init.normal_(self.epsilon)
            if self.shared:
                nn.init.normal_(self.self_loop_scale)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Scores `[N, R]` of `rows [N, input_dim]`, and of epsilons `[Q]`, for the semiring."""
        options, semiring = self.options, self.options.algebra
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
        epsilon = options.encode(self.epsilon)
        if options.epsilon_scale is not None:
            epsilon = semiring.times(epsilon, options.constant(options.epsilon_scale, epsilon))
        return self._with_loops(scores), epsilon

    def main_path_weights(self, pattern: int) -> Tensor:
        """Weights of a pattern's main-path arcs, `[states - 1, input_dim]`."""
        arcs = self.layout.main_path[: self.layout.lengths[pattern] - 1]
        return self.weight[[arc.start + pattern - arc.first_pattern for arc in arcs]]

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

    def _with_loops(self, scores: Tensor) -> Tensor:
        """Puts shared self-loops beside the main path and scales loops: `[N, arcs]` to `[N, R]`."""
        options, semiring = self.options, self.options.algebra
        if self.shared:
            scale = options.encode(self.self_loop_scale)
            loops = semiring.times(scores[:, self.loop_sources], scale)
        elif options.self_loop_scale is not None:
            loops = scores[:, self.num_main :]
            loops = semiring.times(loops, options.constant(options.self_loop_scale, loops))
        else:
            return scores
        return torch.cat([scores[:, : self.num_main], loops], dim=1)

    def _loop_sources(self) -> list[int]:
        """For each self-loop, the main-path arc out of its state; END loops come after those."""
        layout, sources, own = self.layout, [], self.num_main
        for i, loop in enumerate(layout.loops):
            for pattern in range(loop.first_pattern, layout.num_patterns) if loop else ():
                if layout.lengths[pattern] == i + 1:
                    sources.append(own)
                    own += 1
                else:
                    arc = layout.main_path[i]
                    sources.append(arc.start + pattern - arc.first_pattern)
        return sources
