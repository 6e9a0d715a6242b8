"""How faithful explanations are: what a class loses with the words that they name (ERASER)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from sopa_plugin.data.batches import Documents
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.leave_one_out import LeaveOneOut, Replacement, class_probabilities
from sopa_plugin.interpret.matching import ArcScores
from sopa_plugin.interpret.subject import Subject
from sopa_plugin.wfsa import document_scores

SHARES = (1, 5, 10, 20, 50)
"""How many % of a document's words are dropped or kept: as in ERASER, section 4."""

CHECKED, CHUNK = 100, 64
"""Documents over which one measures, spread evenly over the set; how many are read at once."""

RANKED_BY = {
    "next": "phrases: next best match",
    "no_match": "phrases: no match",
    "zero": "phrases: zero",
    "mean": "phrases: mean",
    "leave_one_word_out": "leaving out one word",
    "gradient": "gradient × input",
    "random": "random spans",
}
"""What ranks words, as it is told; of phrases, what their contributions compare with."""

_FIGURES = "comprehensiveness", "sufficiency"

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Faithfulness(Explanation):
    """AOPC comprehensiveness and sufficiency of rankings of words (DeYoung et al. 2020, section 4).

    With m(x) the probability of the predicted class and r_k the first k % of a document's words as
    they are ranked, rounded up: comprehensiveness is m(x) − m(x without r_k), high where these
    words mattered, sufficiency m(x) − m(r_k alone), low where they suffice. The area over the
    perturbation curve (AOPC) is the mean over k = 1, 5, 10, 20, 50, as ERASER's released code takes
    it, then over documents. Words are ranked
        by phrases: each contribution to the class, for or against it, that is evidence is shared
            out evenly among the words of its phrase;
        by leaving out one word: what the probability falls by without it;
        by gradient × input: of the class's log-probability by the token's vector, times that;
        at random: spans as many and as long as those of the phrases' first k %, so that coverage
            is the same, at random places that do not overlap.

    Arguments:
        runs: the models' names.
        documents: over how many it was measured, of all runs.
        curves: by ranking, comprehensiveness and sufficiency by share, `[runs, 2, shares]`.
        pattern_share: by replacement, which share of the variance of all contributions lies between
            patterns, whatever the document, `[runs]`.
    """

    template = "faithfulness.html"
    heads: ClassVar[tuple[str, ...]] = "words ranked by", *_FIGURES, "pattern's share"

    runs: tuple[str, ...]
    documents: int
    curves: dict[str, Floats]
    pattern_share: dict[str, Floats]

    @property
    def title(self) -> str:
        return f"Faithfulness of explanations: {', '.join(self.runs)}"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """By ranking: its name, comprehensiveness, sufficiency, the pattern's share, in words."""
        return [
            (
                RANKED_BY[name],
                *(_spread(aopc, 3) for aopc in curves.mean(axis=2).T),
                _spread(100 * share, 0, " %") if share is not None else "",
            )
            for name, curves in self.curves.items()
            for share in [self.pattern_share.get(name)]
        ]

    @property
    def about(self) -> str:
        """What was measured."""
        of = f" of {len(self.runs)} runs, mean ± standard deviation" * (len(self.runs) > 1)
        return f"over {self.documents:,} documents{of}"

    def joined(self, other: Faithfulness) -> Faithfulness:
        """The same with what was measured of other models."""
        curves, shares = (
            {name: np.concatenate([one[name], two[name]]) for name in one}
            for one, two in (
                (self.curves, other.curves),
                (self.pattern_share, other.pattern_share),
            )
        )
        documents = self.documents + other.documents
        return Faithfulness(self.runs + other.runs, documents, curves, shares)

    def to_dict(self) -> dict[str, Any]:
        rankings: dict[str, dict[str, Any]] = {}
        for name, curves in self.curves.items():
            for figure, curve in zip(_FIGURES, curves.mean(axis=0), strict=True):
                found = {figure: float(curve.mean()), f"{figure}_by_share": curve.tolist()}
                rankings[name] = rankings.get(name, {}) | found
            if name in self.pattern_share:
                rankings[name]["pattern_share"] = float(self.pattern_share[name].mean())
        return {"documents": self.documents, "shares": SHARES, "rankings": rankings}

    def painted(self) -> str:
        """A table in Markdown."""
        rows = [self.heads, *self.rows]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, wide)) + " |" for row in rows]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in wide) + "|")
        return "\n".join([f"Faithfulness {self.about}", "", *lines])


def _spread(values: Floats, decimals: int, unit: str = "") -> str:
    """The mean and, of several, the standard deviation."""
    spread = f" ± {values.std(ddof=1):.{decimals}f}" if len(values) > 1 else ""
    mean = round(float(values.mean()), decimals) + 0.0
    return f"{mean:.{decimals}f}".replace("-", "−") + spread + unit


def measure(
    explainer: Explainer,
    run: str,
    documents: Sequence[Any],
    replacements: Sequence[Replacement] = (),
    checked: int = CHECKED,
) -> Faithfulness:
    """The faithfulness of a model's explanations of the labels that it predicts.

    Arguments:
        explainer: of a subject with a head; it takes the means of these documents if it has none.
        run: the model's name.
        documents: of which `checked` are taken, spread evenly; those without a word say nothing.
        replacements: what contributions compare with; by default the explainer's own. Random
            spans are as long as those of the first.

    Raises:
        UserError: No document has a word.
    """
    subject, random = explainer.subject, np.random.default_rng(0)
    if explainer.means is None:
        explainer.use_means_of(documents)
    compared: dict[Replacement, LeaveOneOut] = {
        each: LeaveOneOut(subject, each, explainer.means)
        for each in replacements or (explainer.replacement,)
    }
    effects: dict[str, list[Floats]] = {each: [] for each in compared}
    curves: list[dict[str, Floats]] = []
    places = np.unique(np.linspace(0, len(documents) - 1, min(checked, len(documents))).astype(int))
    for some in np.array_split(places, range(CHUNK, len(places), CHUNK)):
        scored = ArcScores.of(subject, subject.read([documents[place] for place in some.tolist()]))
        labels = scored.logits.argmax(dim=-1).cpu().numpy()
        found = {each: it(scored) for each, it in compared.items()}
        # shape: [documents, K, labels]; what is no evidence has no weight
        given = {
            each: np.where(it.evidence(scored.scores)[..., None], found[each], 0.0)
            for each, it in compared.items()
        }
        gradients = gradient_times_input(subject, scored.documents, labels)
        bounds, consumed = scored.documents.offsets, scored.consumed[scored.ids >= 0]
        for number, label in enumerate(labels.tolist()):
            start, end = bounds[number : number + 2].tolist()
            ids = scored.documents.ids[start:end]
            words = np.flatnonzero(~subject.is_special(ids))
            if not len(words):
                continue
            for each, contributions in found.items():
                effects[each].append(contributions[number])
            inside = consumed[start:end]
            ranked: dict[str, Floats] = {
                each: shared_out(found[number, :, label], inside) for each, found in given.items()
            }
            ranked["gradient"] = gradients[start:end]
            of = partial(class_probabilities, subject, new_words=scored.documents.new_words)
            curves.append(_curves(of, ids, words, label, ranked, random))
    if not curves:
        raise UserError("no document has a word, so there is nothing to rank")
    means = {name: np.mean([each[name] for each in curves], axis=0)[None] for name in curves[0]}
    between = {}
    for replacement, given_by in effects.items():
        # shape: [documents, K, labels]; variances of several labels are added up
        all_of = np.stack(given_by)
        total = all_of.var(axis=(0, 1)).sum()
        share = all_of.mean(axis=0).var(axis=0).sum() / total if total else 0.0
        between[replacement] = np.array([share])
    return Faithfulness((run,), len(curves), means, between)


def shared_out(effects: Floats, inside: NDArray[np.bool_]) -> Floats:
    """What each token `[tokens]` has of contributions `[K]`, each shared among those `inside` it.

    shape: `inside [tokens, K]`.
    """
    found: Floats = inside @ (effects / np.maximum(inside.sum(axis=0), 1))
    return found


def gradient_times_input(
    subject: Subject, documents: Documents, labels: NDArray[np.integer]
) -> Floats:
    """Of each token `[tokens]`, its vector times the gradient by it of the class's log-probability.

    `labels [documents]` are the classes. The gradient is that of the token where it stands.
    """
    rows = subject.vectors(documents).detach().requires_grad_()
    every, offsets = torch.arange(len(rows)), torch.from_numpy(documents.offsets)
    with torch.enable_grad():
        operands = subject.encoder.operands(rows, every.to(rows.device), offsets.to(rows.device))
        logits = subject.logits(subject.document_vectors(document_scores(*operands)))
        chosen = logits.log_softmax(dim=-1)[range(len(labels)), labels.tolist()]
        # where scores are true or false, as in the boolean semiring, no row has a part in it
        (gradient,) = torch.autograd.grad(chosen.sum() + 0 * rows.sum(), rows)
    found: Floats = (gradient * rows).sum(dim=-1).detach().double().cpu().numpy()
    return found


def random_spans(chosen: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
    """As many of n words as are `chosen [n]`, in spans of the same lengths at random places.

    A faithful explanation must beat them.
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    lengths = random.permutation(edges[1::2] - edges[::2])
    sizes = np.ones(len(chosen) - chosen.sum() + len(lengths), dtype=int)
    spans = np.sort(random.choice(len(sizes), len(lengths), replace=False))
    sizes[spans] = lengths
    return np.repeat(np.isin(np.arange(len(sizes)), spans), sizes)


def _curves(
    probabilities: Callable[[Sequence[NDArray[np.int64]]], Floats],
    ids: NDArray[np.int64],
    words: NDArray[np.int64],
    label: int,
    ranked: Mapping[str, Floats],
    random: np.random.Generator,
) -> dict[str, Floats]:
    """Comprehensiveness and sufficiency by share, `[2, shares]`, of every ranking of one document.

    Of its tokens `ids`, `words` are words; `ranked` says what tokens weigh, the phrases' first.
    """
    without_each = [np.delete(ids, word) for word in words]
    whole, *without = probabilities([ids, *without_each])[:, label]
    weights = {name: each[words] for name, each in ranked.items()}
    weights["leave_one_word_out"] = -np.array(without)
    chosen = np.zeros((len(weights) + 1, len(SHARES), len(words)), dtype=bool)
    for row, weight in zip(chosen, weights.values(), strict=False):
        order = np.argsort(-weight, kind="stable")
        for share, mask in zip(SHARES, row, strict=True):
            mask[order[: -(-share * len(words) // 100)]] = True
    chosen[-1] = [random_spans(mask, random) for mask in chosen[0]]
    dropped = [words[mask] for mask in chosen.reshape(-1, len(words))]
    kept = [words[~mask] for mask in chosen.reshape(-1, len(words))]
    parts = [np.delete(ids, places) for places in dropped + kept]
    found = whole - probabilities(parts)[:, label].reshape(2, len(chosen), -1)
    return dict(zip([*weights, "random"], found.swapaxes(0, 1), strict=True))
