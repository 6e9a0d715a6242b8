"""Where arcs and states lie, by hand."""

from __future__ import annotations

import pytest

from sopa_plugin.wfsa import Layout


def test_blocks_of_ragged_patterns() -> None:
    layout = Layout((2, 3, 3, 4))
    # Main path: arc 0 of all four, arc 1 of the last three, arc 2 of the last one.
    assert layout.main_path == ((0, 0, 4), (4, 1, 3), (7, 3, 1))
    # Self-loops of states 1 (three patterns have more than END after it) and 2.
    assert layout.loops == (None, (8, 1, 3), (11, 3, 1), None)
    assert layout.epsilon_arcs == layout.main_path
    assert layout.states == ((0, 0, 4), (4, 0, 4), (8, 1, 3), (11, 3, 1))
    assert (layout.num_scores, layout.num_epsilons, layout.num_states) == (12, 8, 12)
    assert layout.main_path[1].columns == slice(4, 7)


def test_boundary_loops_are_the_states_themselves() -> None:
    layout = Layout((2, 3), boundary_loops=True)
    main = sum(block.size for block in layout.main_path)
    assert [loop and loop._replace(start=loop.start - main) for loop in layout.loops] == [
        *layout.states
    ]


def test_without_loops_and_epsilons_only_the_main_path_is_left() -> None:
    layout = Layout((2, 4), self_loops=False, epsilons=False)
    assert layout.loops == (None,) * 4
    assert layout.epsilon_arcs == ()
    assert layout.num_scores == layout.num_states - layout.num_patterns == 4


def test_fifty_patterns_need_250_scores() -> None:
    """The design's example: 10 patterns each of 2 to 6 states."""
    assert Layout(tuple(length for length in range(2, 7) for _ in range(10))).num_scores == 250


@pytest.mark.parametrize("lengths", [(), (1, 2), (3, 2)])
def test_impossible_lengths_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Layout(lengths)
