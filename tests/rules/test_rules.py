"""Rules fire on the texts that Python's `re` over tokens and spaCy's Matcher say."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sopa_plugin.errors import UserError
from sopa_plugin.rules.automaton import ANY, DoesNotFit, HardPattern, Item, fit
from sopa_plugin.rules.check import report
from sopa_plugin.rules.matching import RuleMatcher
from sopa_plugin.rules.rule import Rules
from sopa_plugin.rules.tokens import END, START, TokenTest, one_of, read_regex, read_token
from sopa_plugin.rules.unknown import Questions
from sopa_plugin.wfsa import best_matches, spell_out

SHARED = Path(__file__).parents[3] / "shared" / "data" / "rules"
A, B, C = (one_of(frozenset(letter)) for letter in "abc")


def star(test: TokenTest) -> Item:
    return Item(test, 0, None)


def maybe(test: TokenTest) -> Item:
    return Item(test, 0, 1)


def test_a_gap_is_a_self_loop_and_what_may_be_missing_an_epsilon_beside_its_arc() -> None:
    (pattern,) = fit([Item(A), star(ANY), Item(B), maybe(C), Item(A)])
    assert pattern.main_path == (A, B, C, A)
    assert pattern.loops == (None, ANY, None, None, None)
    assert pattern.epsilons == (False, False, True, False)


def test_two_loops_that_meet_are_parted_by_an_epsilon() -> None:
    (pattern,) = fit([Item(A), star(B), star(C), Item(A)])
    assert pattern == HardPattern((A, None, A), (False, True, False), (None, B, C, None))


def test_ends_that_change_nothing_are_dropped_and_kept_beside_an_anchor() -> None:
    assert fit([star(B), maybe(C), Item(A, 1, None), maybe(B)]) == fit([Item(A)])
    (pattern,) = fit([Item(START), star(B), Item(A)])
    assert pattern.loops == (None, B, None)


def test_optional_tokens_in_a_row_are_a_union() -> None:
    assert len(fit([Item(A), maybe(B), maybe(C), Item(A)])) == 2
    assert len(fit([Item(A), Item(B, 1, 3), Item(A)])) == 1  # b? b b?


@pytest.mark.parametrize(
    "items",
    [[star(A)], [Item(START), star(ANY), Item(END)], [Item(A, 100, 100)], [Item(A, 0, 0)]],
)
def test_what_does_not_fit_is_refused(items: list[Item]) -> None:
    with pytest.raises(DoesNotFit):
        fit(items)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def as_regex(rule: str) -> re.Pattern[str]:
    """A word regex as Python's, over tokens with a blank after each."""
    special = {"$": r"(?:\S+ )", "%": r"(?:(?:\d+\.?\d*|\.\d+) )", "&": r'(?:[,:!.()|?"] )'}
    special |= {"EOS": r"\Z"} | {sign: sign for sign in "()|*+?"}
    pieces = re.sub(r"([()|*+?])", r" \1 ", rule).split()
    return re.compile("".join(special.get(p) or f"(?:{re.escape(p)} )" for p in pieces))


def disagreements(rules: Rules, texts: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    fires = RuleMatcher(rules.rules).fires(texts)
    assert fires.any()
    found = []
    for number, rule in enumerate(rules.rules):
        expression = as_regex(rule.text)
        for text, fired in zip(texts, fires[:, number].tolist(), strict=True):
            line = "".join(word + " " for word in text)
            if (expression.fullmatch(line) is not None) is not fired:
                found.append((rule.text, line))
    return found


@pytest.mark.parametrize(("name", "patterns"), [("atis", 48), ("trec", 69)])
def test_published_rules_fire_where_python_says(name: str, patterns: int) -> None:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    rules = Rules.read(folder / "rules.txt")
    assert sum(len(rule.patterns) for rule in rules.rules) == patterns
    lines = (folder / "train.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    assert disagreements(rules, [line.split("\t")[1].split(" ") for line in lines[::4]]) == []


def random_expression(draw: random.Random, depth: int = 0) -> str:
    pieces = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.2 and depth < 2:
            options = [random_expression(draw, depth + 1) for _ in range(draw.randint(1, 3))]
            pieces.append(f"( {' | '.join(options)} )" + draw.choice(["", "", " ?"]))
        else:
            pieces.append(draw.choice("aaabbc$$%&") + draw.choice(["", "", " *", " +", " ?"]))
    return " ".join(pieces)


@pytest.mark.parametrize("seed", range(4))
def test_random_rules_fire_where_python_says(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    expressions = [
        draw.choice(["", "$ * "]) + random_expression(draw) + draw.choice(["", " $ *", " EOS"])
        for _ in range(120)
    ]
    rules = Rules.examine(write(tmp_path / "rules.txt", "[x]", *expressions))
    assert len(rules.rules) > 60
    texts = [[draw.choice("abc7.") for _ in range(draw.randint(0, 9))] for _ in range(150)]
    assert disagreements(rules, texts) == []


def test_a_gap_of_a_thousand_tokens(tmp_path: Path) -> None:
    rules = Rules.read(write(tmp_path / "rules.txt", "[x]", "$ * not $ * good $ *"))
    text = ["not", *["very"] * 1000, "good", "film"]
    matcher = RuleMatcher(rules.rules)
    assert matcher.fires([text, text[1:]]).tolist() == [[True], [False]]
    assert spans(matcher, [text]) == [[(0, 1002)]]


def spans(
    matcher: RuleMatcher, texts: Sequence[Sequence[str]]
) -> list[list[tuple[int, int] | None]]:
    """The first word of a match of each rule in each text, and the one after its last."""
    found: list[list[tuple[int, int] | None]] = []
    for arcs in matcher.batches(texts):
        matches = best_matches(matcher.layout, "boolean", arcs)
        lengths = arcs.offsets.diff().tolist()
        for paths, length in zip(spell_out(matcher.layout, arcs, matches), lengths, strict=True):
            found.append([None] * matcher.num_rules)
            for path, owner in zip(paths, matcher.owners.tolist(), strict=True):
                if path is not None and found[-1][owner] is None:
                    # without the tokens before and after the text
                    found[-1][owner] = max(path.start - 1, 0), min(path.end - 1, length - 2)
    return found


TOKENS: list[dict[str, Any]] = [
    *({}, {"LOWER": "good"}, {"TEXT": "a"}, {"ORTH": "b"}, {"LOWER": {"IN": ["a", "b"]}}),
    *({"LOWER": {"NOT_IN": ["a", "good"]}}, {"IS_PUNCT": True}, {"IS_PUNCT": False}),
    *({"LIKE_NUM": True}, {"IS_DIGIT": True}, {"IS_ALPHA": True}, {"IS_TITLE": True}),
    *({"IS_UPPER": True}, {"LENGTH": {">=": 3}}, {"LENGTH": 1}, {"SHAPE": "xxxx"}),
    *({"TEXT": {"REGEX": "^[a-c]$"}}, {"IS_ALPHA": True, "LENGTH": {"<": 3}}),
]
MORE_TOKENS: list[dict[str, Any]] = [
    *({"LOWER": {"IN": ["paris", "Not"]}, "TEXT": {"NOT_IN": ["paris"]}}, {"LENGTH": 3}),
    *({"LOWER": "not", "IS_TITLE": True}, {"ORTH": {"NOT_IN": []}}, {"LENGTH": {"IN": [1, 7]}}),
    {"LOWER": {"NOT_IN": ["a"]}, "LENGTH": 1},
]
SIGNS = [*[None] * 6, "!", "?", "*", "+", "{2}", "{1,2}", "{0,2}", "{2,}", "{,2}", "{1,3}"]
WORDS = ["a", "b", "Not", "good", "GOOD", "7", "1,000", "ten", "3rd", ".", "!", "--", "x1", "Paris"]
WORDS += ["İ", "½", "٣", "1/2", "3.", "±2", "ǅ", "🙂", "a" * 120]


@pytest.mark.parametrize("seed", range(3))
def test_token_patterns_fire_where_spacy_says_on_one_of_its_spans(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    patterns = []
    for _ in range(120):
        tokens = [dict(draw.choice([*TOKENS, *MORE_TOKENS])) for _ in range(draw.randint(1, 5))]
        signs = [draw.choice(SIGNS) for _ in tokens]
        patterns.append(
            [t | ({"OP": sign} if sign else {}) for t, sign in zip(tokens, signs, strict=True)]
        )
    texts = [[draw.choice(WORDS) for _ in range(draw.randint(0, 12))] for _ in range(80)]
    assert_as_spacy(patterns, texts, tmp_path)


GAPS: list[dict[str, Any]] = [
    *({"OP": "*"}, {"OP": "+"}, {"LOWER": {"NOT_IN": ["b"]}, "OP": "*"}, {"OP": "{2,5}"}),
    *({"IS_PUNCT": False, "OP": "+"}, {"LENGTH": 1, "OP": "{3,}"}, {"TEXT": "c", "OP": "!"}),
]


def test_gaps_of_up_to_a_thousand_tokens_are_as_spacy_has_them(tmp_path: Path) -> None:
    patterns = [[{"LOWER": "a"}, gap, {"LOWER": {"IN": ["b", "d"]}}] for gap in GAPS]
    texts = [
        ["a", *random.Random(length).choices(filling, k=length), "b", "e"]
        for length in (3, 100, 1000)
        for filling in ("c", "c.", "77x", "cb")
    ]
    assert_as_spacy(patterns, texts, tmp_path)


def assert_as_spacy(
    patterns: Sequence[Sequence[dict[str, Any]]], texts: Sequence[Sequence[str]], folder: Path
) -> None:
    """Every rule that is not refused fires where spaCy's Matcher does, on one of its spans."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    rows = [{"label": "x", "id": str(n), "pattern": p} for n, p in enumerate(patterns)]
    rules = Rules.examine(write(folder / "rules.jsonl", *map(json.dumps, rows)))
    assert {reason.rpartition(": ")[2] for _, reason in rules.faults} <= {
        "make one of its tokens sure"
    }
    found = spans(RuleMatcher(rules.rules), texts)
    assert any(each is not None for spanned in found for each in spanned)
    vocabulary = spacy.blank("en").vocab
    documents = [spacy.tokens.Doc(vocabulary, words=text) for text in texts]
    for number, rule in enumerate(rules.rules):
        matcher = spacy.matcher.Matcher(vocabulary)
        matcher.add("x", [patterns[int(rule.name)]])
        for text, document in zip(range(len(texts)), documents, strict=True):
            theirs = {(start, end) for _, start, end in matcher(document)}
            ours = found[text][number]
            assert ours in theirs if theirs else ours is None, (rule.text, texts[text])


def test_questions_are_answered_as_each_test_would() -> None:
    """Whether a word is named, in another case, or not at all."""
    asked = [read_token(token) for token in [*TOKENS, *MORE_TOKENS]]
    tests = [*asked, *(replace(test, negated=True) for test in asked), START, END]
    questions = Questions(tests)
    words = [spelt for word in [*WORDS, "zork", "İ", ""] for spelt in (word, word.upper())]
    expected = [[test.accepts(word) for test in tests] for word in words]
    assert questions.table(map(questions.answers, words)).tolist() == expected


def test_a_lexicon_takes_terms_in_any_case_those_of_one_word_as_a_set(tmp_path: Path) -> None:
    lines = ["good\tpos", "Great\tpos", "not good\tneg\t2", "awful\tneg"]
    rules = Rules.read(write(tmp_path / "terms.tsv", *lines))
    assert [(r.label, r.weight, len(r.patterns)) for r in rules.rules] == [
        *(("neg", 2.0, 1), ("pos", 1.0, 1), ("neg", 1.0, 1))
    ]
    fires = RuleMatcher(rules.rules).fires([["GREAT", "film"], ["Not", "good"], []])
    assert fires.tolist() == [[False, True, False], [True, True, False], [False, False, False]]


def test_lines_of_one_id_are_one_rule(tmp_path: Path) -> None:
    rows = [{"label": "x", "id": "greeting", "pattern": p} for p in ("good day", "hello")]
    (rule,) = Rules.read(write(tmp_path / "r.jsonl", *map(json.dumps, rows))).rules
    assert (rule.name, len(rule.patterns)) == ("greeting", 2)


BAD = {
    "{": "not JSON",
    "[1]": "expected an object",
    '{"label": "x", "pattern": [{"LEMMA": "be"}]}': "no attribute 'LEMMA'",
    '{"label": "x", "pattern": [{"LOWER": {"FUZZY": "be"}}]}': "no relation 'FUZZY'",
    '{"label": "x", "pattern": [{"LENGTH": "3"}]}': "expected a whole number",
    '{"label": "x", "pattern": [{"TEXT": "a", "OP": "**"}]}': "OP: expected one of",
    '{"label": "x", "pattern": [{"TEXT": "a", "OP": "{3,1}"}]}': "n at most m",
    '{"label": "x", "pattern": []}': "matches the empty text",
    '{"label": "x", "pattern": [{"TEXT": {"REGEX": "(a+)+$"}}]}': "may take too long",
    '{"label": "x", "pattern": [{"TEXT": {"REGEX": "("}}]}': "not a regular expression",
    '{"label": "x", "pattern": [{"TEXT": {"REGEX": "(?<=a+)b"}}]}': "not a regular expression",
    '{"label": "x", "pattern": [{"TEXT": {"REGEX": {"IN": "ab"}}}]}': "TEXT: IN takes a list",
    '{"label": "x", "pattern": [{"TEXT": {"IN": "ab"}}]}': "TEXT: IN takes a list",
    '{"label": "x", "pattern": [{"TEXT": {"IN": []}}]}': "no word is in an empty list",
    '{"label": "x", "pattern": [{"TEXT": "a", "OP": ["?"]}]}': "OP: expected one of",
    '{"label": "x", "pattern": [{"TEXT": "a", "TEXT": "b"}]}': "key 'TEXT' is given twice",
    '{"label": "x", "pattern": "\\ud800"}': "half of a surrogate pair",
    '{"label": "x", "pattern": "a", "over": [""]}': "over: expected a string",
    '{"label": "x", "pattern": "a", "wieght": 2}': "no key 'wieght'",
    '{"label": "", "pattern": "a"}': "label: expected a string",
    '{"label": "x", "pattern": "a", "weight": "2"}': "weight: expected a number",
    f'{{"label": "x", "pattern": "a", "weight": 1{"0" * 400}}}': "weight: expected a number up to",
    '{"label": "x", "pattern": "a", "weight": -1e39}': "weight: expected a number up to",
}


def test_every_fault_of_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.jsonl", *BAD, '{"label": "x", "pattern": "good"}')
    with pytest.raises(UserError) as raised:
        Rules.read(file)
    lines = str(raised.value).split("\n")
    for number, (line, expected) in enumerate(zip(lines, BAD.values(), strict=True), 1):
        assert line.startswith(f"{file}:{number}: ")
        assert expected in line


@pytest.mark.parametrize(
    ("name", "lines", "where"),
    [
        (
            "r.jsonl",
            [
                '{"label": "positive", "pattern": "good"}',
                '{"label": "negative", "pattern": "not", "over": ["positive", "postive"]}',
                '{"label": "negative", "pattern": "no", "over": "postive"}',
            ],
            [2, 3],
        ),
        ("r.txt", ["[positive]", "$* good", "", "[negative] > postive", "$* no", "$* not"], [4]),
    ],
)
def test_labels_that_lose_a_vote_are_those_of_rules(
    name: str, lines: list[str], where: list[int], tmp_path: Path
) -> None:
    file = write(tmp_path / name, *lines)
    reason = "over: no rule has the label 'postive'; expected one of 'positive', 'negative'"
    reason += "; did you mean 'positive'?"
    with pytest.raises(UserError) as raised:
        Rules.read(file)
    assert str(raised.value).split("\n") == [f"{file}:{line}: {reason}" for line in where]
    told = list(report(Rules.examine(file)))
    assert [line for line in told if "refused: " in line] == [
        f"{file}:{line}: refused: {reason}" for line in where
    ]
    assert (
        len(Rules.read(write(file, *(each.replace("postive", "positive") for each in lines))).rules)
        == 3
    )
    # whose label a line has that cannot be read is not known
    broken = write(file, *(each.replace("$*", "( $").replace('"good"', "3") for each in lines))
    assert "postive" not in str(list(report(Rules.examine(broken))))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("( a b ) * c", "a group of several words is repeated"),
        ("( a", "a ( without its )"),
        ("a ) b", "a ) without its ("),
        ("* a", "nothing before the *"),
        ("[a-z]+", "expected words"),
        ("[ ]", "expected words"),
        ("EOS a", "EOS: expected at its end"),
        ("a * *", "one of * + ? at a time"),
        (" ".join(["( a b | c d )"] * 7), "more than 64 patterns"),
        ("a " * 100, "50 tokens or more"),
        ("a " * 100_000, "more than 1000 tokens"),
        (f"q {'x ? ' * 30} q", "more than 64 patterns"),  # of 2 to the 30th that are alike
        ("( " * 100_000, "( in ( without end"),
    ],
)
def test_word_regexes_that_do_not_fit_are_refused(rule: str, expected: str, tmp_path: Path) -> None:
    (fault,) = Rules.examine(write(tmp_path / "r.txt", "// ours", "[x]", rule)).faults
    assert fault.line == 3
    assert expected in fault.reason


@pytest.mark.parametrize("rule", ["box\\b", "$ * box\\b"])
def test_a_rule_that_is_refused_is_named_once(rule: str, tmp_path: Path) -> None:
    file = write(tmp_path / "r.txt", "[x]", rule, "a $ *")
    told = list(report(Rules.examine(file)))
    part = "" if rule == "box\\b" else "'box\\\\b': "
    assert told[0].startswith(f"{file}:2: refused: {rule!r}: {part}expected words, $ % & EOS")
    assert told[-1] == "1 rule of 1 label is 1 pattern; 1 refused"


SLOW = [
    *(
        "(a|aa)+$",
        "(a*)*",
        r"(a)\1",
        "a*a*a*a*b",
        "((a+b)+)+",
        "(a?){30}a{30}",
        "a?" * 30 + "a" * 30,
    ),
    *("a{0,100}" * 10 + "b", "(?:(?:a+)+b)*+", "(?>(a+)+b)", "(?=(a+)+b)a", "(a|b|ab)?" * 30),
]


@pytest.mark.parametrize("pattern", SLOW)
def test_expressions_that_take_long_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="may take too long"):
        read_regex(pattern)


def test_long_words_are_not_looked_at_to_their_end() -> None:
    """The slowest expressions that are read, and words of which all would take days."""
    slowest = [read_token({"TEXT": {"REGEX": each}}) for each in ("a*a*a*$b", "(a?){14}$b")]
    assert not any(test.accepts("a" * 100_000) for test in slowest)
    assert read_token({"TEXT": {"REGEX": r"^\d+$"}}).accepts("7" * 100_000)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "^[a-z]+-?[0-9]+$",
            ".*foo.*bar.*",
            "^(un|in).+(able|ible)$",
            "(ab)+",
            "x{0}",
            "[ab]{90}",
        ),
        *(r"\d{1,3}(,\d{3})*", "^(mon|tues|wednes|thurs|fri|satur|sun)day$", "(a|bc){1,3}$"),
    ],
)
def test_expressions_that_people_write_are_read(pattern: str) -> None:
    assert read_regex(pattern) == pattern


def test_a_lexicon_of_many_words_is_sets_and_of_many_phrases_too_much(tmp_path: Path) -> None:
    words = [f"word{n}\tpos" for n in range(10_000)]
    (rule,) = Rules.read(write(tmp_path / "words.tsv", *words)).rules
    assert len(rule.patterns) == 1
    phrases = [f"a{n} b{n}\tpos" for n in range(2000)]
    file = write(tmp_path / "phrases.tsv", *phrases, words[0])
    rules = Rules.examine(file)
    assert [rule.line for rule in rules.rules[-2:]] == [500, 2001]
    (fault,) = rules.faults  # two arcs and a self-loop for each; 4 bytes for each pair with a word
    assert fault.line == 501
    assert "2000 in all, which would take 0.096 GB" in fault.reason


def test_rules_that_ask_for_capitals_are_refused_where_case_is_folded(tmp_path: Path) -> None:
    rows = [[{"IS_TITLE": True}], [{"TEXT": "Paris"}], [{"LOWER": "paris"}]]
    lines = (json.dumps({"label": "x", "pattern": row}) for row in rows)
    rules = Rules.read(write(tmp_path / "r.jsonl", *lines)).without_case()
    assert [rule.line for rule in rules.rules] == [3]
    assert [line for line, _ in rules.faults] == [1, 2]


def test_the_report_counts_conflicts_and_what_is_not_covered(tmp_path: Path) -> None:
    file = write(tmp_path / "r.txt", "[pos]", "$ * good $ *", "[neg]", "$ * not $ *", "( a b ) +")
    rules = Rules.examine(file)
    texts = [["good"], ["not", "good"], ["dull"]]
    lines = list(report(rules, texts, ["pos", "neg", "neg"]))
    assert lines[0].startswith(
        f"{file}:2: pos/1: exact; fires on 2, precision 50.0%, recall 100.0%"
    )
    assert "neg/1: exact; fires on 1, precision 100.0%, recall 50.0%" in lines[1]
    assert "refused: " in lines[2]
    assert lines[3] == "2 rules of 2 labels are 2 patterns; 1 refused"
    assert "conflict: pos/1 and neg/1 both fire on 1 text" in lines
    assert lines[-2:] == ["no rule fires on 1 of 3 texts", "  3: 'dull'"]


def test_the_command_reports_on_labelled_texts(tmp_path: Path) -> None:
    rules = write(tmp_path / "r.jsonl", '{"label": "pos", "pattern": [{"LOWER": "good"}]}')
    data = write(tmp_path / "d.csv", "message,kind", "Good!,pos", "Bad.,neg", '"a, GOOD one",pos')
    columns = ["--text-column", "message", "--label-column", "kind"]
    command = [sys.executable, "-m", "sopa_plugin", "rules", "check", rules, "--data", data]
    done = subprocess.run([*command, *columns], capture_output=True, text=True, check=True)
    assert "fires on 2, precision 100.0%, recall 100.0%" in done.stdout
    write(rules, '{"label": "pos", "pattern": [{"POS": "NOUN"}]}')
    done = subprocess.run([*command, *columns], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "refused: no attribute 'POS'" in done.stdout
    assert f"{rules}: 1 rule refused; see above" in done.stderr
    assert "Traceback" not in done.stderr
