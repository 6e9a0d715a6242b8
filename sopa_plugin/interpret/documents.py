"""Why one document got its label: what each pattern contributed and which words it matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, pairwise
from shutil import get_terminal_size
from typing import Any, NamedTuple
from zlib import crc32

from sopa_plugin.errors import visible
from sopa_plugin.interpret.explanation import Explanation, Told
from sopa_plugin.interpret.markup import (
    REPLACED,
    Picture,
    aligned,
    class_keys,
    columns,
    fold,
    joined,
    mark,
    number,
    padded,
    paint,
    percent,
    pieces,
    render,
    shorten,
    side,
    signed,
    text_width,
    wrap,
)
from sopa_plugin.interpret.match import Match

LONG, CONTEXT = 150, 12
"""Words from which on a document is shown in passages, and words on each side of what is marked."""

LABELS = 6
"""Labels whose probabilities are drawn, at most."""

ROOM, MARGIN, SIZE, KEY, LEGEND = 440.0, 18.0, 15.0, 10.0, 11.0
BLANK, TEXT, STRIPE, BADGE = 5.0, 30.0, 8.0, 24.0
"""Of a picture: what lies between words, a line of text, one of spans below it, a class's key."""


@dataclass(slots=True)  # there are as many as patterns in each document
class Contribution(Told):
    """What one pattern contributed to the classes of one document.

    Arguments:
        pattern: the pattern's name.
        score: the pattern's document score; not finite where it does not match.
        matches: the best match of each pattern in the document, None where it does not match.
        effect: by label, the label's log-odds minus those with the pattern's score replaced.
        others: for replacement `next`, the next best matches; None where none is left.
        evidence: whether the pattern scores at least as much as it does on average, where that is
            known; one that scores less is not shown.
    """

    told = "pattern", "score", "effect", "match", "instead", "evidence"

    pattern: str
    score: float
    matches: Mapping[str, Match | None]
    effect: dict[str, float]
    others: Mapping[str, Match | None] | None = None
    evidence: bool = True

    @property
    def match(self) -> Match | None:
        """The pattern's best match."""
        return self.matches[self.pattern]

    @property
    def instead(self) -> Match | None:
        """Its next best match, which stands instead for replacement `next`."""
        return None if self.others is None else self.others[self.pattern]


class Span(NamedTuple):
    """A shown contribution's place: tokens `start <= i < end`, the line below the text it lies on.

    `rank` counts contributions from 1, the largest.
    """

    start: int
    end: int
    rank: int
    effect: float
    lane: int

    @property
    def key(self) -> str:
        """The mark and the number that the contribution has in the table."""
        return f"{mark(self.effect)}{self.rank}"


@dataclass(frozen=True, repr=False)
class DocumentExplanation(Explanation):
    """One document explained by leave-one-out (paper, section 7, "Interpreting a document").

    Arguments:
        tokens: the document's tokens, as the patterns read them.
        probabilities: by label, the model's probability.
        target: the label that is explained; the predicted one unless asked otherwise.
        gold: the document's own label where it is known.
        contributions: every pattern's, the largest effect on `target` first, for or against.
        shown_patterns: how many of the largest are drawn and checked for faithfulness.
        replacement: what a contribution compares with (see `LeaveOneOut`).
        comprehensiveness: fall of the target's probability when the words of the shown phrases
            that speak for it are dropped; high where they mattered.
        sufficiency: fall of the same when those words alone are kept; low where they suffice.
        document: the document's number in its data set.
        against: the label rather than which the target is explained; None: all others.
        prior, log_odds: the target's log-odds before the document was read, and now.
    """

    template = "document.html"
    told = (
        "document", "tokens", "probabilities", "predicted", "target", "against", "gold",
        "replacement", "comprehensiveness", "sufficiency", "prior", "log_odds", "contributions",
    )  # fmt: skip

    tokens: tuple[str, ...]
    probabilities: dict[str, float]
    target: str
    gold: str | None
    contributions: tuple[Contribution, ...]
    shown_patterns: int
    replacement: str
    comprehensiveness: float
    sufficiency: float
    document: int = 0
    against: str | None = None
    prior: float = 0.0
    log_odds: float = 0.0

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""
        return tuple(self.probabilities)

    @property
    def predicted(self) -> str:
        """The label of highest probability."""
        return max(self.probabilities, key=lambda label: self.probabilities[label])

    @property
    def shown(self) -> tuple[Contribution, ...]:
        """The largest contributions that are evidence, other than none at all."""
        seen = (it for it in self.contributions if it.evidence and it.effect[self.target] != 0)
        return tuple(islice(seen, self.shown_patterns))

    @property
    def reasons(self) -> tuple[Contribution, ...]:
        """The shown contributions of a phrase that speak for the target."""
        return tuple(it for it in self.shown if it.match and it.effect[self.target] > 0)

    @property
    def is_wrong(self) -> bool:
        """Whether another label is predicted than the document has, where that is known."""
        return self.gold is not None and self.gold != self.predicted

    @property
    def way(self) -> list[tuple[float, float]]:
        """From the prior to the decision: where each of its steps starts and ends, in log-odds.

        The prior, the contributions shown, the sum of all others, what patterns do together that no
        single one's contribution says, and the whole.
        """
        every = [item.effect[self.target] for item in self.contributions]
        shown = [item.effect[self.target] for item in self.shown]
        reached = accumulate([self.prior, *shown, sum(every) - sum(shown)])
        return [*pairwise([0.0, *reached, self.log_odds]), (0.0, self.log_odds)]

    @property
    def text(self) -> str:
        """The document as running text."""
        return joined(self.tokens)

    @property
    def title(self) -> str:
        return f"{self.predicted}: {shorten(self.text, 60)}" if self.tokens else self.predicted

    @property
    def explained(self) -> str:
        """Which label is explained and how probable it is, where it is not just the predicted."""
        if self.target == self.predicted and self.against is None:
            return ""
        labels = [f"{each} {percent(self.probabilities[each])}" for each in self.competing]
        return f"; explained: {' rather than '.join(labels)}"

    @property
    def competing(self) -> list[str]:
        """The target and the label against which it is explained, if it is one."""
        return [self.target] if self.against is None else [self.target, self.against]

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The most probable labels with their probabilities, and the document's own."""
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])
        return [item for n, item in enumerate(ranked) if n < LABELS or item[0] == self.gold]

    @property
    def about(self) -> str:
        """How faithful the marked phrases are or, where none are, what decided."""
        if not self.tokens and not self.shown:
            return "an empty document: only the model's prior decided"
        if not self.reasons:
            return f"no phrase speaks for {self.target}"
        whole = self.probabilities[self.target]
        without, alone = whole - self.comprehensiveness, whole - self.sufficiency
        return (
            f"{self.target} {percent(whole)} → {percent(without)} without the phrases marked ▲, "
            f"{percent(alone)} with them alone"
        )

    @property
    def digest(self) -> str:
        """Tells documents on one page apart."""
        return f"{crc32(repr((self.tokens, self.target)).encode()):08x}"

    def spans(self) -> list[Span]:
        """Where the shown contributions are, each on the first line below the text that is free.

        Those of the same words that speak for the same side share a line.
        """
        found = [
            (item.match.start, item.match.end, rank, item.effect[self.target])
            for rank, item in enumerate(self.shown, start=1)
            if item.match and item.match.end > item.match.start
        ]
        free_from: list[int] = []
        lanes: dict[tuple[int, int, bool], int] = {}
        spans = []
        for start, end, rank, effect in sorted(found, key=lambda span: (span[0], -span[1])):
            extent = start, end, effect > 0
            if extent not in lanes:
                free = [lane for lane, position in enumerate(free_from) if position <= start]
                lanes[extent] = free[0] if free else len(free_from)
                free_from += [0] * (not free)
                free_from[lanes[extent]] = end
            spans.append(Span(start, end, rank, effect, lanes[extent]))
        return spans

    def words(self) -> dict[int, tuple[bool, str]]:
        """The words to be shown, by their numbers, and whether a blank stands before each.

        Of a long document, what lies around spans, `…` for the rest.
        """
        words = dict(enumerate(pieces(self.tokens)))
        if len(words) <= LONG:
            return words
        near = {i for s in self.spans() for i in range(s.start - CONTEXT, s.end + CONTEXT)}
        near = near or set(range(2 * CONTEXT))
        after = {i + 1 for i in near} | {0}  # where what is left out begins
        kept = sorted((near | after) & words.keys())
        return {i: words[i] if i in near else (True, "…") for i in kept}

    @property
    def marked(self) -> list[tuple[str, str]]:
        """The words to be shown, as text in pieces: which side each speaks for, and the piece.

        Of several contributions of the same word, the largest counts.
        """
        sides: dict[int, str] = {}
        for span in sorted(self.spans(), key=lambda span: -span.rank):
            sides |= dict.fromkeys(range(span.start, span.end), side(span.effect))
        groups = groupby(self.words().items(), lambda word: sides.get(word[0], ""))
        return [
            (look, "".join(" " * blank + text for _, (blank, text) in words))
            for look, words in groups
        ]

    def painted(self) -> str:
        """The words with their spans below them, and the table of contributions."""
        head = f"{paint(visible(self.predicted), 'strong')} {visible(self._said)}"
        lines = [head, "", *self._bars()]
        lines += [*self._underlined(), ""] if self.tokens else []
        if self.shown:
            sides = f"▲ speaks for {visible(' rather than '.join(self.competing))}, ▼ against"
            compared = f"against the same document {REPLACED[self.replacement]}"
            lines += [*self._table(), "", fold(f"{sides}; contributions {compared}")]
        return "\n".join([*lines, fold(visible(self.about))])

    @property
    def _said(self) -> str:
        """How probable the predicted label is, the document's own, what is explained."""
        gold = f" (labelled {self.gold})" if self.gold is not None else ""
        return f"{percent(self.probabilities[self.predicted])}{gold}{self.explained}"

    def _table(self) -> list[str]:
        """The contributions; the next best match behind the phrase or, where it is wide, below."""
        scores = ["score", *(number(item.score) for item in self.shown)]
        edge = max(map(len, scores))
        cells = [(f"{'log-odds':>13}", "pattern", f"{'score':>{edge}}")]
        phrases, others = ["phrase"], ["next best"]
        for rank, item in enumerate(self.shown, start=1):
            value = item.effect[self.target]
            figure = paint(f"{mark(value)}{rank:<2} {signed(value):>9}", side(value))
            cells.append((figure, visible(item.pattern), f"{scores[rank]:>{edge}}"))
            phrases.append(visible(item.match.phrase) if item.match else "(no match)")
            other = visible(item.instead.phrase) if item.instead else "– its mean"
            others.append(paint(other, "muted"))
        rows = aligned(cells)
        if self.replacement == "next":
            wide, beside = (max(map(columns, column)) for column in (phrases, others))
            wide, below = min(40, wide), columns(rows[0]) + 4
            fits = below + wide + beside <= get_terminal_size().columns
            phrases = [
                f"{padded(phrase, wide)}  {other}" if fits else f"{phrase}\n{'':{below}}{other}"
                for phrase, other in zip(phrases, others, strict=True)
            ]
        return [f"{row}  {phrase}" for row, phrase in zip(rows, phrases, strict=True)]

    def _bars(self) -> list[str]:
        """Probabilities as bars, where there are more than two labels."""
        if len(self.probabilities) < 3:
            return []
        rows = [
            (
                visible(label),
                f"{percent(share):>5}",
                paint("█" * round(30 * share), "for" if label == self.target else "muted"),
            )
            for label, share in self.ranked
        ]
        return [*aligned(rows), ""]

    def _underlined(self) -> list[str]:
        """The words, and below each line of them its spans: `▲1━━━` for, `▼2╍╍╍` against."""
        spans = sorted(self.spans(), key=lambda span: span.rank)
        words = {i: (blank, visible(text)) for i, (blank, text) in self.words().items()}
        sizes = {i: (float(blank), columns(text)) for i, (blank, text) in words.items()}
        found = []
        for line in wrap(sizes, get_terminal_size().columns):
            shown = "".join(" " * words[i][0] + words[i][1] for i in line)
            found.append(shown.removeprefix(" "))
            for span in spans:
                if covered := [i for i in line if span.start <= i < span.end]:
                    left = int(line[covered[0]])
                    width = int(line[covered[-1]] + sizes[covered[-1]][1]) - left
                    key = span.key if span.start in covered else ""
                    stroke = "━" if span.effect > 0 else "╍"
                    bar = (key + stroke * width)[: max(width, len(key))]
                    found.append(" " * left + paint(bar, side(span.effect)))
        return found

    def to_svg(self) -> str:
        """The document with its matched spans, coloured by contribution."""
        legend = (
            f"▲ speaks for {' rather than '.join(self.competing)} · ▼ dashed: against · numbers "
            f"rank contributions, each against the same document {REPLACED[self.replacement]}"
        )
        legend = legend if self.shown else self.about
        return self.picture(None, f"{self.predicted} {self._said}", legend).svg(
            self.title, alone=True
        )

    def picture(self, anchor: str | None = None, heading: str = "", legend: str = "") -> Picture:
        """The words and the lines below them, in lines of a fixed width; text above and below.

        A key can be jumped to by `anchor` and its number.
        """
        spans, words = self.spans(), self.words()
        keys = {i: sorted((s for s in spans if s.start == i), key=lambda s: s.rank) for i in words}
        widths = {
            i: min(ROOM, text_width(text, SIZE) + sum(_key_width(span) for span in keys[i]))
            for i, (_, text) in words.items()
        }
        margin = MARGIN if heading else 0.0
        notes, top = _lines(heading, margin + 12 * bool(heading), SIZE, "strong", ROOM - BADGE)
        lines, y = [], 18.0
        for line in wrap({i: (BLANK * words[i][0], widths[i]) for i in words}, ROOM):
            drawn, segments = [], []
            for i, x in line.items():
                starts = accumulate(map(_key_width, keys[i]), initial=x)
                *at, left = starts
                placed = list(zip(keys[i], at, strict=True))
                drawn.append((words[i][1], left, x + widths[i] - left, placed))
            inside = [span for span in spans if any(span.start <= i < span.end for i in line)]
            for span in inside:
                covered = [i for i in line if span.start <= i < span.end]
                x = line[covered[0]]
                segments.append((span, x, line[covered[-1]] + widths[covered[-1]] - x))
            lines.append((y, drawn, segments))
            y += TEXT + STRIPE * max((span.lane + 1 for span in inside), default=0)
        height = y - TEXT + 10
        below, end = _lines(legend, top + height + 20, LEGEND, "muted")
        look: dict[str, Any] = {"margin": margin, "stripe": STRIPE, "key_size": KEY, "size": SIZE}
        look |= {"beside": BADGE, "key": class_keys(self.labels)[self.predicted]}
        elements = render(
            "document.svg", notes=notes + below, top=top, lines=lines, anchor=anchor, **look
        )
        return Picture(ROOM + 2 * margin, end if legend else height, elements)


def _lines(
    text: str, y: float, size: float, look: str, room: float = ROOM
) -> tuple[list[tuple[str, float, float, str]], float]:
    """Running text from the line `y` on, and where its last line ends."""
    words = text.split()
    sizes = {i: (0.34 * size, text_width(word, size)) for i, word in enumerate(words)}
    lines = [" ".join(words[i] for i in line) for line in wrap(sizes, room)] if words else []
    found = [(line, y + 1.4 * size * n, size, look) for n, line in enumerate(lines)]
    return found, y + 1.4 * size * len(found)


def _key_width(span: Span) -> float:
    return text_width(span.key, KEY) + 3


@dataclass(frozen=True, repr=False)
class DocumentExplanations(Explanation):
    """Several documents, one after another."""

    template = "documents.html"
    told = ("documents",)

    documents: tuple[DocumentExplanation, ...]

    @property
    def title(self) -> str:
        first = shorten(self.documents[0].text, 60)
        return f"{len(self.documents)} documents, the first: {first}"

    def painted(self) -> str:
        return "\n\n".join(each.painted() for each in self.documents)
