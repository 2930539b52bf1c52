"""What each node did: spares, lost and swapped nodes have tracks of their own."""

from __future__ import annotations

from tests.metrics.accounting.stories import Story, shown


def allocation() -> Story:
    story = Story()
    story.job("7.0", 1, 0.0, 0.0, 100.0, nodes="n[1-4]")
    story.at(1.0, "attempt.started")
    story.at(10.0, "cycle.started", cycle=0, nodes=["n1", "n2"], spares=["n3", "n4"])
    story.at(10.0, "role.started", cycle=0)
    story.at(20.0, "workload.resumed", cycle=0, step=0)
    return story


def swapped() -> Story:
    """n2 is lost at 50, noticed at 55; n3 takes its place."""
    story = allocation()
    story.words("7.0", 0, (50.0, 30))
    story.at(50.0, "node.lost", cycle=0, node="n2", reason="gone")
    story.at(55.0, "incident", cycle=0, kind="node_lost", onset=50.0, detected=55.0, node="n2", step=30)
    story.at(56.0, "decision", cycle=0, action="swap_node")
    story.at(56.0, "cycle.ended", cycle=0, category="node_down", step=30, node="n2", continued=True)
    story.at(58.0, "cycle.started", cycle=1, nodes=["n1", "n3"], spares=["n4"])
    story.at(60.0, "role.started", cycle=1)
    story.at(70.0, "workload.resumed", cycle=1, step=30)
    story.words("7.0", 1, (90.0, 50))
    story.at(90.0, "role.exited", cycle=1, exit_code=0)
    story.at(91.0, "stage.completed", epoch=0)
    return story


def test_a_lost_node_is_down_and_the_spare_that_takes_over_was_idle() -> None:
    (found,) = swapped().tiled()
    assert [track.nodes for track in found.tracks] == [("n1",), ("n2",), ("n3",), ("n4",)]
    own = [
        ("launching", 10.0),
        ("init", 10.0),
        ("productive", 30.0),  # → 50, kept by the copy that cycle 1 goes on from
        ("detecting", 5.0),
        ("diagnosing", 1.0),
        ("restarting", 4.0),  # → 60
        ("init", 10.0),
        ("productive", 20.0),  # → 90
        ("draining", 10.0),
    ]
    assert shown(found, 0) == own
    assert shown(found, 1) == [*own[:3], ("down", 10.0), ("down", 40.0)]  # of cycle 0, then of cycle 1
    assert shown(found, 2) == [own[0], ("idle_spare", 48.0), ("restarting", 2.0), *own[6:]]
    assert shown(found, 3) == [own[0], ("idle_spare", 50.0), ("idle_spare", 30.0), own[-1]]


def test_when_every_node_was_replaced_the_attempt_s_own_track_has_none() -> None:
    story = allocation()
    story.at(40.0, "decision", cycle=0, action="swap_node")
    story.at(41.0, "cycle.ended", cycle=0, category="hang", continued=True)
    story.at(42.0, "cycle.started", cycle=1, nodes=["n3", "n4"], spares=[])
    (found,) = story.tiled()
    assert [track.nodes for track in found.tracks] == [(), ("n1", "n2"), ("n3", "n4")]
    assert shown(found, 1)[-1] == ("down", 58.0)
    assert shown(found, 2)[1] == ("idle_spare", 32.0)


def test_a_node_that_failed_its_checks_is_down_from_the_first_cycle_on() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 0.0, 100.0, nodes="n[1-3]")
    story.at(10.0, "cycle.started", cycle=0, nodes=["n1", "n2"], spares=[])
    (found,) = story.tiled()
    assert shown(found, 1) == [("launching", 10.0), ("down", 90.0)]
    assert found.tracks[1].nodes == ("n3",)


def test_a_node_lost_before_any_cycle_is_down_to_the_end() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 0.0, 100.0)
    story.at(1.0, "attempt.started")
    story.at(30.0, "node.lost", node="n2", reason="gone")
    (found,) = story.tiled()
    assert [track.nodes for track in found.tracks] == [("n1",), ("n2",)]
    assert shown(found, 1) == [("launching", 30.0), ("down", 70.0)]
