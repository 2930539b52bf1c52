"""Records and repairs of nodes out of a ledger, and advice from a scope's own data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.accounting.advise import advise
from metrics.accounting.nodes import records, repaired
from metrics.ledger import Ledger
from metrics.stats.advice import expected_ettr
from tests.metrics.accounting.stories import RUN, Story, two_attempts
from tests.metrics.rundirs import lines, write

DAY = 86400.0
Make = Callable[[Story], Ledger]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(story: Story) -> Ledger:
        ledger = Ledger.open(tmp_path / "ledger.db")
        ledger.ingest_run(write(tmp_path / "runs" / RUN, {"w": lines(story.events)}))
        return ledger

    return made


def kept_out() -> Story:
    """The two attempts; n2 kept out from 600 to 700, by proof, then back; n1 once by a person."""
    story = two_attempts()
    order = {"cluster": "c1", "category": "gpu_fault", "reason": "fell off", "evidence": []}
    story.at(600.0, "node.excluded", None, node="n2", until=600.0 + 7 * DAY, by="proof", **order)
    story.at(700.0, "node.readmitted", None, node="n2", cluster="c1", reason="mended", by="person:me")
    story.at(800.0, "node.excluded", None, node="n1", until=900.0, by="person:me", **order)
    return story


def test_a_record_has_a_node_s_time_and_the_failures_laid_on_it(make: Make) -> None:
    one, two = records(make(kept_out()), now=1000.0)
    assert (one.node, two.node) == ("n1", "n2")
    assert one.node_days == two.node_days == pytest.approx(550 / DAY)
    assert (one.failures, two.failures) == (0, 1)
    assert two.signals == {
        "excl_jobid_count": 0,
        "out_count": 1,
        "multi_node_node_fails": 1,
        "single_node_node_fails": 0,
    }
    assert (one.signals["excl_jobid_count"], one.signals["out_count"]) == (1, 1)


def test_a_record_is_of_its_window_and_cluster(make: Make) -> None:
    ledger = make(kept_out())
    late = records(ledger, now=28 * DAY + 560.0)
    assert [(one.node_days, one.failures) for one in late] == [(pytest.approx(100 / DAY), 0)] * 2
    assert records(ledger, now=1000.0, cluster="c2") == []


def test_a_program_s_own_error_is_not_laid_on_the_node_it_was_seen_on(make: Make) -> None:
    story = two_attempts()
    at = next(n for n, event in enumerate(story.events) if event.type == "cycle.ended")
    story.events[at].data["category"] = "code_error"  # type: ignore[index]
    assert [one.failures for one in records(make(story), now=1000.0)] == [0, 0]


def test_what_came_of_keeping_nodes_out(make: Make) -> None:
    story = kept_out()
    ledger = make(story)
    first, second = repaired(ledger, now=1000.0)
    assert (first.node, first.out_at, first.back_at, first.state) == ("n1", 800.0, 900.0, "watched")
    assert (second.node, second.out_at, second.back_at, second.state) == ("n2", 600.0, 700.0, "watched")
    assert [one.state for one in repaired(ledger, now=20 * DAY)] == ["well", "well"]
    assert repaired(ledger, now=650.0)[0].state == "out"


def test_advice_takes_its_arguments_from_the_run(make: Make) -> None:
    found = advise(make(kept_out()))
    interval = found.interval
    # 391 s of steps (190 new, 99 repeated, 102 lost), three saves that wait 4, 5 and 5 s; a failure in 550 s;
    # 19 s of recovery for it, and one of three starts.
    assert interval is not None
    assert interval.now == pytest.approx(391 / 3)
    starts = 22 + 10 + 20 + 2 + 6 + 8 + 5 + 2 + 6 + 34
    assert interval.ettr_now == pytest.approx(expected_ettr(391 / 3, 14 / 3, 550.0, starts / 3 + 19.0))
    spares = found.spares
    assert spares is not None
    assert spares.missing == pytest.approx(2 * (DAY / 1100) * 100 / DAY)  # each away for 100 s
    (fix,) = found.fixes
    assert (fix.cause, fix.failures) == ("gpu_fault", 1)
    assert fix.node_hours == pytest.approx(2 * (102 + 4 + 1 + 14) / 3600)
    assert fix.share_of_allocation == pytest.approx((102 + 4 + 1 + 14) / 550)


def test_advice_that_cannot_be_given_says_why(make: Make) -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 100.0, state="COMPLETED")
    found = advise(make(story))
    assert (found.interval, found.spares, found.fixes) == (None, None, ())
    assert "no checkpoint was committed" in found.notes[0] and "spares" in found.notes[1]
