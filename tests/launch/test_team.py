"""What the supervisor knows of its agents: late words, lost words, senseless words."""

from __future__ import annotations

from launch.outcome import RankEnd
from launch.team import RETURN_S, Team

END = RankEnd(1, 1, 5.0, "ValueError: x", node="b").as_data()


def team() -> Team:
    made = Team.of(["a", "b", "s"])
    for node in "abs":
        made.take(node, {"kind": "hello", "node": node, "address": "10.0.0.1"})
    made.begin(3, ["a", "b"])
    return made


def test_spares_are_what_does_not_train() -> None:
    it = team()
    assert it.usable() == ["a", "b", "s"] and it.spares() == ["s"]
    it.bar("s", "failed its checks")
    assert it.spares() == []


def test_words_of_another_cycle_do_not_count() -> None:
    it = team()
    it.take("a", {"kind": "ended", "cycle": 2, "ends": [END]})
    it.take("a", {"kind": "failed", "cycle": 2, "end": END})
    assert not it.ended() and it.first_failed() is None
    it.take("b", {"kind": "failed", "cycle": 3, "end": END})
    assert it.first_failed() == RankEnd.from_data(END)


def test_a_cycle_is_over_when_everybody_there_has_said_so() -> None:
    it = team()
    it.take("a", {"kind": "ended", "cycle": 3, "ends": []})
    assert not it.ended()
    it.lose("b", "node b was lost")
    assert it.ended() and [m.node for m in it.lost_members()] == ["b"]


def test_a_connection_that_ends_is_a_loss_only_after_a_while() -> None:
    it = team()
    assert it.take("b", None) == "gone"
    left = it.members["b"].left_at
    assert left is not None and it.usable() == ["a", "s"]
    assert it.overdue(left + RETURN_S / 2) == []
    assert [m.node for m in it.overdue(left + 2 * RETURN_S)] == ["b"]
    it.take("b", {"kind": "hello", "node": "b"})
    assert it.overdue(left + 100) == [] and "b" in it.usable()


def test_who_said_goodbye_is_not_lost() -> None:
    it = team()
    it.take("b", {"kind": "bye", "code": 0})
    it.take("b", None)
    assert it.overdue(1e12) == []


def test_senseless_words_change_nothing() -> None:
    it = team()
    for message in (
        {"kind": "ended", "cycle": 3, "ends": [{"rank": 1}]},
        {"kind": "ended", "cycle": "x", "ends": []},
        {"kind": "ended", "cycle": 3},
        {"kind": "ready", "cycle": 3},
        {"kind": "failed", "cycle": 3, "end": 7},
        {},
    ):
        it.take("a", message)
    assert it.take("nobody", {"kind": "hello"}) == ""
    assert not it.ended() and it.first_failed() is None


def test_a_rank_that_died_by_itself_comes_before_one_that_only_shows_it() -> None:
    it = team()
    followed = RankEnd(0, 1, 5.0, "RuntimeError: Connection closed by peer [127.0.0.1]:1", node="a")
    died = RankEnd(1, 137, 5.1, node="b")  # its shim tells a moment after the other rank noticed
    it.take("a", {"kind": "failed", "cycle": 3, "end": followed.as_data()})
    assert it.first_failed() == followed
    it.take("b", {"kind": "failed", "cycle": 3, "end": died.as_data()})
    assert it.first_failed() == died
