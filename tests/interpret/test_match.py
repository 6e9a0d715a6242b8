from __future__ import annotations

import json

import pytest

from sopa_plugin.interpret import Match, Step, pattern_names


@pytest.fixture
def match() -> Match:
    """The paper's second pattern: "is ε clumsy ,SL the writing", of five states."""
    steps = (
        Step("main_path", 0, 0.9, 3, "is"),
        Step("epsilon", 1, 0.5),
        Step("main_path", 2, 0.8, 4, "clumsy"),
        Step("self_loop", 3, 0.7, 5, ","),
        Step("main_path", 3, 0.6, 6, "the"),
    )
    return Match("5-2", 5, 0.1512, 17, 3, 7, steps)


def test_names_count_within_each_length() -> None:
    assert pattern_names((2, 2, 3, 5, 5, 5)) == ("2-1", "2-2", "3-1", "5-1", "5-2", "5-3")


def test_columns_are_states_with_loop_words_under_the_state_that_kept_them(match: Match) -> None:
    columns = {state: [step.shown for step in steps] for state, steps in match.columns().items()}
    assert columns == {1: ["is"], 2: ["[ε]"], 3: ["clumsy", "↻,"], 4: ["the"]}


def test_a_loop_at_start_has_a_column_of_its_own() -> None:
    steps = (Step("self_loop", 0, 1.0, 0, "well"), Step("main_path", 0, 1.0, 1, "done"))
    columns = Match("2-1", 2, 1.0, 0, 0, 2, steps).columns()
    assert columns == {0: [steps[0]], 1: [steps[1]]}


def test_dictionary_is_json_and_keeps_where_everything_was(match: Match) -> None:
    found = json.loads(json.dumps(match.to_dict(), allow_nan=False))
    assert found["phrase"] == "is clumsy , the"
    assert (found["document"], found["start"], found["end"]) == (17, 3, 7)
    assert [step["arc"] for step in found["steps"]].count("epsilon") == 1
    assert [step.get("position") for step in found["steps"]] == [3, None, 4, 5, 6]
