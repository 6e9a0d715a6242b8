"""The progress bar of an epoch."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm  # type: ignore[import-untyped]


class EpochBar(tqdm):
    """A progress bar with the loss and accuracy of one process so far, for a `with` statement.

    Arguments:
        epoch: its number.
        total: steps of the epoch.
        done: steps that were taken before, where the epoch was begun in a run that stopped.
        hidden: not to be shown at all; where there is no terminal it never is.
    """

    def __init__(self, epoch: int, total: int, done: int, hidden: bool) -> None:
        super().__init__(
            total=total,
            initial=done,
            desc=f"epoch {epoch}",
            disable=True if hidden else None,
            leave=False,
        )
        self.loss = self.correct = self.count = 0.0

    def add(self, results: Iterable[tuple[Tensor, Tensor]], steps: int) -> None:
        """Moves on by `steps`, whose logits `[batch, labels]` and labels `[batch]` are given."""
        if self.disable:
            return
        for logits, labels in results:
            self.loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            self.correct += float((logits.argmax(dim=1) == labels).sum())
            self.count += len(labels)
        if self.count:
            self.set_postfix(
                loss=f"{self.loss / self.count:.3f}",
                accuracy=f"{self.correct / self.count:.3f}",
                refresh=False,
            )
        self.update(steps)
