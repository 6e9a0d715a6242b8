"""Which epoch is best, and when to stop."""

from __future__ import annotations

from sopa_plugin.training.metrics import MetricTracker


def test_smaller_loss_is_better_and_equal_is_not() -> None:
    tracker = MetricTracker("-loss", patience=2)
    assert [tracker.add(value, epoch) for epoch, value in enumerate([3.0, 2.0, 2.0])] == [
        True,
        True,
        False,
    ]
    assert (tracker.best, tracker.best_epoch, tracker.should_stop) == (2.0, 1, False)
    tracker.add(2.5, 3)
    assert tracker.should_stop


def test_a_new_best_renews_patience() -> None:
    tracker = MetricTracker("+accuracy", patience=1)
    for epoch, value in enumerate([0.5, 0.6, 0.7]):
        assert tracker.add(value, epoch)
        assert not tracker.should_stop
    assert not tracker.add(0.65, 3)
    assert tracker.should_stop
    assert tracker.best_epoch == 2


def test_without_patience_it_never_stops() -> None:
    tracker = MetricTracker("-loss")
    for epoch in range(100):
        tracker.add(1.0, epoch)
    assert not tracker.should_stop
