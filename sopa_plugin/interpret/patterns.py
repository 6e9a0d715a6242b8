"""Patterns read one by one: best phrases, effect on the classes, how often they fire, arcs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from markupsafe import Markup

from sopa_plugin.errors import UserError, counted, visible
from sopa_plugin.interpret.automaton import ArcReading, arcs_text, automaton
from sopa_plugin.interpret.explanation import Explanation, Told
from sopa_plugin.interpret.leave_one_out import LEAST, TOP, Arc, Use
from sopa_plugin.interpret.markup import (
    REPLACED,
    Picture,
    aligned,
    fold,
    number,
    paint,
    percent,
    render,
    side,
    signed,
    state_name,
    text_width,
    unpainted,
)
from sopa_plugin.interpret.match import Match, unknown_pattern

SIZE, SMALL, LINE, PAD, LETTERS = 13.0, 11.0, 17.0, 13.0, 22
OFTEN, HARDLY = 0.25, 0.05
"""Shares of a pattern's matches from which on, and below which, one says what they do."""

ALIKE = 0.5**0.5
"""The correlation from which on patterns are near duplicates: half of their variance is shared."""

GLOSS = 3
"""Words of an arc in a pattern's gloss."""

Order = Literal["dev", "accuracy", "precision", "recall", "share", "influence"]
ORDERS: dict[str, str] = {
    "dev": "what is lost without them",
    "accuracy": "how much accuracy falls without them",
    "precision": "precision for their label",
    "recall": "recall of their label",
    "share": "how often they are among the largest contributions",
    "influence": "their effect where they fire",
}
"""What patterns can be sorted by."""

NO_MATCH = "no match in these documents"

WIDTH, CARD, GAP = 1000.0, 280.0, 16.0
"""Of a picture of several cards: how wide it may be, a card at least, what lies between cards."""


@dataclass(frozen=True)
class PatternReading(Told):
    """One pattern, read over a data set.

    Arguments:
        name: the pattern's name, `5-3` for the third pattern of five states.
        num_states: states, START and END included.
        matches: the best matches, best first, each phrase once.
        best, mean: the highest and the mean document score, among documents with a match;
            not finite where there are none.
        matched: share of documents with a match.
        threshold: the document score from which on the pattern fires, halfway between those.
        fires: share of documents in which it does.
        effect: by label, the mean contribution over the documents in which the pattern fires;
            empty where no head is read.
        arcs: every arc.
        use: what it does on labelled documents, if there are any.
        alike: its near duplicates: patterns whose document scores correlate with its own, the
            nearest first.
    """

    told = (
        "best", "mean", "matched", "threshold", "fires", "effect", "use", "gloss", "alike",
        "matches", "arcs",
    )  # fmt: skip

    name: str
    num_states: int
    matches: tuple[Match, ...]
    best: float
    mean: float
    matched: float
    threshold: float
    fires: float
    effect: dict[str, float]
    arcs: tuple[ArcReading, ...] = ()
    use: Use | None = None
    alike: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str | None:
        """The label that the pattern speaks for most; None where it has no effect."""
        if max(map(abs, self.effect.values()), default=0.0) < LEAST:
            return None
        return max(self.effect, key=lambda label: self.effect[label])

    @property
    def strength(self) -> float:
        """The effect on that label."""
        return self.effect[self.label] if self.label is not None else 0.0

    @property
    def verdict(self) -> str:
        """The effect in words; empty where no head is read."""
        if self.label is None:
            return "no class" if self.effect else ""
        return f"{visible(self.label)} {signed(self.strength)}"

    @property
    def facts(self) -> list[str]:
        """How often the pattern fires and what it scores, in words."""
        found = [f"fires in {percent(self.fires)}", f"best score {number(self.best)}"]
        found.append(f"mean {number(self.mean)}")
        return found + [f"matches in {percent(self.matched)}"] * (self.matched < 1)

    def rank(self, order: Order) -> float:
        """What the pattern is sorted by, the highest first."""
        if order == "influence" or self.use is None:
            return self.strength
        if order == "accuracy":
            return -self.use.accuracy
        return float(getattr(self.use, "loss" if order == "dev" else order))

    @property
    def use_facts(self) -> list[str]:
        """What the pattern does on labelled documents, in words."""
        use = self.use
        if use is None:
            return []
        found = [
            f"without it (held at its mean) loss {signed(use.loss, 4)}, "
            f"accuracy {signed(100 * use.accuracy)} points",
            f"precision {percent(use.precision)}, recall {percent(use.recall)}",
            f"among the {TOP} largest contributions in {percent(use.share)}",
        ]
        if not use.fired:
            found[1] = "fires nowhere there"
        elif self.label is None:
            del found[1]
        return found

    @property
    def habits(self) -> list[str]:
        """Epsilons and self-loops that its matches take often or hardly ever, in words."""
        if self.use is None or not self.use.fired or self.num_states == 2:
            return []
        found, never = [], []
        for kind, often, rare in (
            ("epsilon", "does without its {} word", "does without a word"),
            ("self_loop", "takes more words behind its {}", "takes more words between"),
        ):
            arcs = {arc: share for arc, share in self.use.taken.items() if arc[0] == kind}
            for (_, state), share in arcs.items():
                number = state + (kind == "epsilon")  # of the word that leads from or to the state
                told = often.format(_ordinal(number, self.num_states - 1))
                if share > 1 - HARDLY:
                    found.append(f"nearly always {told}")
                elif share >= OFTEN:
                    found.append(f"{told} in {percent(share)} of its matches")
            never += [rare] * bool(arcs and max(arcs.values()) < HARDLY)
        return [*found, f"hardly ever {' or '.join(never)}"] if never else found

    @property
    def gloss(self) -> str:
        """What its matches consumed on labelled documents: `(equally|a) (fascinating|superb)`.

        `?` stands where an epsilon is often taken instead, `*` behind what a self-loop often takes.
        """
        if self.use is None:
            return ""
        use, parts = self.use, []
        for state in range(self.num_states):
            if use.taken.get(("self_loop", state), 0.0) >= OFTEN:
                parts.append(self._consumed(("self_loop", state)) + "*")
            if use.taken.get(("main_path", state)):
                skipped = use.taken.get(("epsilon", state), 0.0) >= OFTEN
                parts.append(self._consumed(("main_path", state)) + "?" * skipped)
        return " ".join(parts)

    def _consumed(self, arc: Arc) -> str:
        """The words that an arc consumes most; `…` where these are less than half of all."""
        assert self.use is not None
        words = self.use.consumed[arc]
        shown = [word for word, _ in words[:GLOSS]]
        if 2 * sum(count for _, count in words[:GLOSS]) < sum(count for _, count in words):
            shown.append("…")
        return f"({'|'.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        names = {"pattern": self.name, "states": self.num_states}
        return {**names, **super().to_dict(), "alike": dict(self.alike)}

    def painted(self) -> str:
        """A line of facts, a line a phrase, states below one another."""
        head = paint(f"Pattern {self.name}", "strong")
        if self.verdict:
            head += "  " + paint(self.verdict, side(self.strength))
        lines = [head + paint("  " + "  ".join(self.facts[:2]), "muted")]
        for facts in (self.use_facts, self.habits):
            lines += [paint(fold("  " + " · ".join(facts), 4), "muted")] * bool(facts)
        lines += [fold(f"  {visible(self.gloss)}", 4)] * bool(self.gloss)
        rows = [match.columns() for match in self.matches]
        states = sorted({state for row in rows for state in row})
        cells = [
            [visible(" ".join(step.shown for step in row.get(state, ()))) for state in states]
            for row in rows
        ]
        for match, phrase in zip(self.matches, aligned(cells), strict=True):
            score = paint(f"{number(match.score):>8}", "muted")
            lines.append(f"  {score}{phrase}  {match.repeats}".rstrip())
        return "\n".join(lines if rows else [*lines, f"  {NO_MATCH}"])

    def to_text(self, color: bool = False) -> str:
        """The same, without colours unless they are wanted."""
        return self.painted() if color else unpainted(self.painted())

    def phrases(self) -> Picture:
        """The best phrases in state columns, as the paper's table of six patterns."""
        if not self.matches:
            note = Markup('<text y="14" font-size="13" class="muted">{}</text>').format(NO_MATCH)
            return Picture(text_width(NO_MATCH, SIZE), 20, note)
        rows = [match.columns() for match in self.matches]
        states = range(min(min(row) for row in rows), self.num_states)
        scores = [number(match.score) + match.repeats for match in self.matches]
        widths = [max(text_width(score, SIZE) for score in ("score", *scores)) + 20]
        for state in states:
            words = [state_name(state, self.num_states)]
            words += [step.shown for row in rows for step in row.get(state, ())]
            widths.append(max(38.0, max(text_width(word[:LETTERS], SIZE) for word in words) + 16))
        x = list(accumulate(widths, initial=0.0))
        places = {state: (x[n], widths[n]) for n, state in enumerate(states, start=1)}
        depths = [
            1 + max(sum(step.arc == "self_loop" for step in column) for column in row.values())
            for row in rows
        ]
        *y, end = accumulate((LINE * depth + 5 for depth in depths), initial=20.0)
        drawn = [
            (score, top, [(*places[state], column) for state, column in row.items()])
            for score, top, row in zip(scores, y, rows, strict=True)
        ]
        names = ["score", *(state_name(state, self.num_states) for state in states)]
        look = {"size": SIZE, "line": LINE, "letters": LETTERS}
        return Picture(x[-1], end, render("phrases.svg", names=names, x=x, rows=drawn, **look))

    def card(self) -> Picture:
        """The phrases below the facts."""
        phrases, facts = self.phrases(), " · ".join(self.facts)
        after = PAD + 36 + text_width(self.name, SIZE + 2)
        look = {"after": after, "pad": PAD, "size": SIZE, "facts": facts, "phrases": phrases}
        right = [after + text_width(self.verdict, SIZE), PAD + text_width(facts, SMALL)]
        width = max(*right, PAD + phrases.width) + PAD
        return Picture(width, phrases.height + 54 + PAD, render("card.svg", it=self, **look))

    def automaton(self) -> Picture:
        """The pattern's states and arcs."""
        return automaton(self.arcs, self.num_states)


def _ordinal(number: int, last: int) -> str:
    """The place of one word of a pattern in words; its START is the place before the first."""
    names = {0: "START", 1: "1st", 2: "2nd", 3: "3rd"} | {last: "last"}
    return names.get(number, f"{number}th")


@dataclass(frozen=True, repr=False)
class PatternsReading(Explanation, Sequence[PatternReading]):
    """Several patterns read over one data set, the most useful first.

    `documents` counts the documents read, `measured` the labelled ones on which use was measured;
    `replacement` says what an effect compares with, `order` what patterns are sorted by.
    """

    template = "patterns.html"
    told = "documents", "replacement", "measured", "order", "patterns"

    patterns: tuple[PatternReading, ...]
    documents: int
    replacement: str
    measured: int = 0
    order: Order = "influence"

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, key: Any) -> Any:
        """A pattern by its place or by its name."""
        if not isinstance(key, str):
            return self.patterns[key]
        for pattern in self.patterns:
            if pattern.name == key:
                return pattern
        raise KeyError(key)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes; none where no head is read."""
        return tuple(self.patterns[0].effect) if self.patterns else ()

    @property
    def by_label(self) -> dict[str | None, list[PatternReading]]:
        """The patterns by the class that they speak for, in the order of the classes; None last."""
        groups = {
            label: [each for each in self if each.label == label] for label in (*self.labels, None)
        }
        return {label: some for label, some in groups.items() if some}

    @property
    def duplicates(self) -> list[tuple[float, PatternReading, PatternReading]]:
        """Near duplicates, each pair once, with their correlation, the nearest first."""
        place = {pattern.name: n for n, pattern in enumerate(self)}
        pairs = [
            (correlation, pattern, self[name])
            for pattern in self
            for name, correlation in pattern.alike
            if place[pattern.name] < place.get(name, 0)
        ]
        return sorted(pairs, key=lambda pair: -pair[0])

    @property
    def strongest(self) -> float:
        """The largest effect of a pattern on the label that it speaks for."""
        return max((pattern.strength for pattern in self), default=0.0) or 1.0

    @property
    def widest(self) -> float:
        """The size of the largest effect of a pattern on any label."""
        effects = [abs(effect) for pattern in self for effect in pattern.effect.values()]
        return max(effects, default=0.0) or 1.0

    def sorted(self, order: Order) -> PatternsReading:
        """The same sorted by another figure, the highest first.

        Raises:
            UserError: It was not measured.
        """
        if order != "influence" and not self.measured:
            raise UserError(
                f"patterns cannot be sorted by {order}: no labelled documents were read"
            )
        ranked = sorted(self, key=lambda pattern: -pattern.rank(order))
        return replace(self, patterns=tuple(ranked), order=order)

    @property
    def sorted_by(self) -> str:
        """The order in words."""
        return ORDERS[self.order]

    def only(self, names: Sequence[str]) -> PatternsReading:
        """The reading of the patterns named, in that order.

        Raises:
            UserError: A name is not among them.
        """
        known = {pattern.name: pattern for pattern in self.patterns}
        for name in names:
            if name not in known:
                raise unknown_pattern(name, known)
        return replace(self, patterns=tuple(known[name] for name in names))

    def first(self, count: int | None) -> PatternsReading:
        """The first `count` patterns; all without one."""
        return replace(self, patterns=self.patterns[:count])

    def automata(self) -> Automata:
        """The same patterns drawn as automata."""
        return Automata(**vars(self))

    @property
    def title(self) -> str:
        if len(self) > 6:
            return f"{len(self)} patterns"
        names = ", ".join(pattern.name for pattern in self)
        return f"Pattern {names}" if len(self) == 1 else f"Patterns {names}"

    def painted(self) -> str:
        """Each pattern with its facts and its best phrases."""
        head = f"{counted(len(self), 'pattern')} read over {self.documents:,} documents"
        if len(self) > 1:
            head += f", sorted by {self.sorted_by}"
        if any(pattern.effect for pattern in self):
            head += "; behind a class: the effect on its log-odds where the pattern fires, against "
            head += f"the same document {REPLACED[self.replacement]}"
        lines = [fold(head)]
        if self.measured:
            told = (
                f"(a|b|…)  words consumed most on {self.measured:,} labelled documents, of which "
            )
            lines.append(fold(f"{told}loss, precision and so on are, too; ? often none, * more"))
        lines.append(fold("↻word  consumed by a self-loop    [ε]  epsilon, no word consumed"))
        return "\n\n".join(["\n".join(lines), *(each.painted() for each in self)])

    def to_svg(self) -> str:
        """The cards, as many beside each other as fit."""
        cards = [pattern.card() for pattern in self]
        width = max([CARD, *(card.width for card in cards)])
        per_row = min(max(1, int((WIDTH - GAP) // (width + GAP))), max(len(cards), 1))
        placed, y = [], GAP
        for start in range(0, len(cards), per_row):
            row = cards[start : start + per_row]
            height = max(card.height for card in row)
            for place, card in enumerate(row):
                placed.append((card.elements, GAP + place * (width + GAP), y, height))
            y += height + GAP
        elements = render("cards.svg", placed=placed, width=width)
        return Picture(GAP + per_row * (width + GAP), y, elements).svg(self.title, alone=True)


class Automata(PatternsReading):
    """The same, drawn as automata: states, arcs, and the words of each arc."""

    template = "automata.html"

    def painted(self) -> str:
        """Each pattern's arcs, a line each, with their words below."""
        return "\n\n".join(
            "\n".join(
                [paint(f"Pattern {each.name}", "strong"), *arcs_text(each.arcs, each.num_states)]
            )
            for each in self
        )

    def to_svg(self) -> str:
        """The automata, one below another."""
        drawn = [pattern.automaton() for pattern in self]
        *y, end = accumulate((each.height for each in drawn), initial=PAD)
        elements = render("automata.svg", placed=zip(self, drawn, y, strict=True), pad=PAD)
        width = max((each.width for each in drawn), default=0.0)
        return Picture(width, end, elements).svg(self.title, alone=True)
