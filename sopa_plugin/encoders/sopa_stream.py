"""SoPa as a recurrent network: a state is carried from token to token (paper, section 3.4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sopa_plugin.encoders.sopa import SopaEncoder
from sopa_plugin.wfsa.reference import Recurrence


class SopaState(NamedTuple):
    """What has been read so far, of each document of a batch."""

    states: Tensor
    """Scores of the paths into each state of each pattern, `[B, S]`."""
    scores: Tensor
    """Document scores so far, `[B, K]`, as the semiring holds them."""


class SopaStream(nn.Module):
    """Feeds an encoder documents piece by piece, of any length, in constant memory.

    Called like `torch.nn.RNN`, with a chunk of tokens and the state after the last one; what it
    returns after the last chunk is what the encoder gives for the whole document.

    Arguments:
        encoder: the encoder, whose weights are used.
    """

    def __init__(self, encoder: SopaEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, tokens: Tensor, state: SopaState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, SopaState]:
        """Document vectors `[B, K]` of all tokens so far, and the state to go on with.

        `tokens [B, T, input_dim]` come next, those where `mask [B, T]` is true; without a state a
        document begins.
        """
        shape = len(tokens), self.encoder.boundary_width, tokens.shape[2]
        boundaries = self.encoder.boundary_rows(tokens)
        if state is None:
            state = self._begin(tokens)
            if len(boundaries):
                state = self._advance(state, boundaries[0].expand(shape), None)
        state = self._advance(state, tokens, mask)
        last = (
            self._advance(state, boundaries[-1].expand(shape), None) if len(boundaries) else state
        )
        scores = last.scores
        return self.encoder.document_vector(scores, self.encoder.arcs.weight.dtype), state

    def _begin(self, tokens: Tensor) -> SopaState:
        recurrence = self._recurrence(
            self.encoder.arc_scores(tokens.new_zeros(0, tokens.shape[2]))[1]
        )
        states = recurrence.start(len(tokens))
        scores, _ = recurrence.read(states)
        if not recurrence.layout.empty_matches:
            scores = torch.full_like(scores, recurrence.semiring.zero)
        return SopaState(states, scores)

    def _advance(self, state: SopaState, tokens: Tensor, mask: Tensor | None) -> SopaState:
        scores, epsilon = self.encoder.arc_scores(tokens.flatten(0, 1))
        recurrence = self._recurrence(epsilon)
        present = torch.ones(tokens.shape[:2], device=tokens.device) if mask is None else mask
        columns = zip(
            scores.view(*tokens.shape[:2], self.encoder.layout.num_scores).unbind(1),
            present.bool()[..., None].unbind(1),
            strict=True,
        )
        for column, here in columns:
            step = recurrence.step(state.states, column)
            total = recurrence.semiring.plus(state.scores, step.scores)
            state = SopaState(
                torch.where(here, step.state, state.states),
                torch.where(here, total, state.scores),
            )
        return state

    def _recurrence(self, epsilon: Tensor) -> Recurrence:
        return Recurrence(self.encoder.layout, self.encoder.options.algebra, epsilon)
