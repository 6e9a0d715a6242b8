"""How well patterns match a span exactly, consuming all of it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from sopa_plugin.wfsa import reference
from sopa_plugin.wfsa.layout import Arcs, Layout
from sopa_plugin.wfsa.operator import checked
from sopa_plugin.wfsa.semirings import Semiring

Asteration = Literal["first_order", "full"]


class ExactRecurrence(reference.Recurrence):
    """The recurrence of one exact match: it starts before the first token and nowhere else.

    Arguments:
        layout, semiring, epsilon: as for `Recurrence`.
        asteration: T(ε)* in Eq. 2: `first_order`, I + T(ε), takes at most one epsilon between two
            tokens; `full` takes any number.
    """

    def __init__(
        self, layout: Layout, semiring: Semiring, epsilon: Tensor, asteration: Asteration
    ) -> None:
        if asteration not in get_args(Asteration):
            expected = ", ".join(get_args(Asteration))
            raise ValueError(f"asteration: expected one of {expected}; found {asteration!r}")
        super().__init__(layout, semiring, epsilon)
        self.asteration = asteration

    def restart(self, moved: Tensor) -> Tensor:
        """`moved`: no match starts later."""
        return moved

    def take_epsilons(self, state: Tensor) -> Tensor:
        """state·T(ε)*."""
        if self.asteration == "first_order":
            return super().take_epsilons(state)
        states = self.layout.states
        reached = [state[:, states[0].columns]]
        for arc, after in zip(self.layout.epsilon_arcs, states[1:], strict=False):
            before = reached[-1][:, -arc.size :]
            by_epsilon = self.semiring.times(before, self.epsilon[arc.columns])
            reached.append(self.semiring.plus(state[:, after.columns], by_epsilon))
        return torch.cat(reached, dim=1) if self.layout.epsilons else state


def span_scores(
    layout: Layout, semiring: str, arcs: Arcs, asteration: Asteration = "first_order"
) -> Tensor:
    """How well each pattern matches each span, all of it: `[B, K]`, differentiable.

    p_span of the paper's Eq. 2, or of Eq. 1 where the layout has no epsilons; in max semirings the
    best path's score, s_span. Spans are packed like documents; a span of no tokens scores
    π·T(ε)*·η. With a layout whose `final_epsilon` is false, no epsilon follows the last token.

    Arguments:
        layout, semiring, arcs: as for `document_scores`.
        asteration: `first_order` (the paper's experiments and every document score: at most one
            epsilon between two tokens) or `full` (any number).

    Raises:
        ValueError: there is no such `asteration`, or columns are not the layout's.
    """
    arcs = checked(layout, arcs)
    recurrence = ExactRecurrence(layout, Semiring.named(semiring), arcs.epsilon, asteration)
    found = reference.end_scores(recurrence, arcs).scores
    # A span's score is that of the match which ends at its last token.
    empty = recurrence.read(recurrence.start(1))[0]
    places = torch.where(arcs.offsets.diff() > 0, arcs.offsets[1:] - 1, len(found))
    return torch.cat([found, empty])[places]
