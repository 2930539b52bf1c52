"""A limit must leave time for start-up, an interval and a save."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.clusters import Profile
from orchestrator.spec import room
from orchestrator.spec.durations import clock
from tests.orchestrator.spec_files import load, one

EXP = """\
name: demo
cluster: here
stages:
  run:
    kind: command
    run: [work]
    resources: {time: TIME}
    chain: {CHAIN}
"""
SHORT = "startup: 5s, save_time: 2s, signal_lead: 10s"


def on(early_s: float) -> dict[str, Profile]:
    return {"here": Profile("here", signal_early_s=early_s)}


def test_the_message_shows_the_sum(tmp_path: Path) -> None:
    text = EXP.replace("TIME", '"00:02:00"').replace("CHAIN", "startup: 60")
    line = one(tmp_path, text, profiles=on(45))
    assert line == (
        "exp.yaml:7: stages.run.resources.time: leaves no time for work: 120 s - 60 s (startup) - 60 s "
        "(signal lead) - 45 s (signals may come early) - 30 s (save) = -75 s, a link needs at least 20 s; "
        'expected at least "00:03:35", or smaller chain.startup, save_time, signal_lead'
    )


@given(
    startup=st.integers(0, 900),
    save=st.integers(0, 900),
    lead=st.one_of(st.just("auto"), st.integers(0, 900)),
    interval=st.one_of(st.none(), st.integers(1, 900)),
    early=st.sampled_from([0.0, 45.0]),
    time=st.integers(1, 3000),
)
def test_what_the_message_asks_for_is_accepted(
    startup: int, save: int, lead: object, interval: int | None, early: float, time: int
) -> None:
    chain = {"startup": startup, "save_time": save, "signal_lead": lead}
    chain |= {"interval_time": interval, "total_time": None}
    for (section, _), _, expected in room.faults({"time": clock(time)}, chain, early):
        if section == "resources":
            asked = expected.split('"')[1]
            again = room.faults({"time": asked}, chain, early)
            assert [f for f in again if f[0][0] == "resources"] == []


def test_a_minute_is_enough_where_signals_are_exact_and_not_where_they_are_early(tmp_path: Path) -> None:
    text = EXP.replace("TIME", '"00:01:00"').replace("CHAIN", SHORT)
    load(tmp_path, text, profiles=on(0))
    assert "signals may come early" in one(tmp_path, text, profiles=on(45))


def test_without_a_profile_only_what_works_nowhere_is_refused(tmp_path: Path) -> None:
    load(tmp_path, EXP.replace("TIME", '"00:01:00"').replace("CHAIN", SHORT))
    one(tmp_path, EXP.replace("TIME", '"00:00:30"').replace("CHAIN", SHORT))


@pytest.mark.parametrize(("interval", "fits"), [("43s", True), ("44s", False)])
def test_one_interval_must_fit(tmp_path: Path, interval: str, fits: bool) -> None:
    text = EXP.replace("TIME", '"00:01:00"').replace("CHAIN", f"{SHORT}, interval_time: {interval}")
    if fits:
        load(tmp_path, text, profiles=on(0))
    else:
        assert "one interval takes 44 s" in one(tmp_path, text, profiles=on(0))


def test_the_signal_must_leave_time_to_save(tmp_path: Path) -> None:
    text = EXP.replace("TIME", "2h").replace("CHAIN", "signal_lead: 10, save_time: 60")
    line = one(tmp_path, text, profiles=on(0))
    assert line.startswith("exp.yaml:8: stages.run.chain.signal_lead:")
    assert line.endswith("expected at least 60 s")


def test_total_time_holds_at_least_one_link(tmp_path: Path) -> None:
    text = EXP.replace("TIME", "2h").replace("CHAIN", "total_time: 1h")
    assert "stages.run.chain.total_time" in one(tmp_path, text, profiles=on(0))


def test_auto_lead_is_a_save_and_half_a_minute_at_most_half_the_limit() -> None:
    chain = {"signal_lead": "auto", "save_time": 30}
    assert room.signal_lead(chain, 3600) == 60
    assert room.signal_lead(chain, 90) == 45


def test_limits_under_defaults_are_reported_once_there(tmp_path: Path) -> None:
    text = "name: d\ndefaults:\n  resources: {time: 30s}\nstages:\n"
    text += "  a: {kind: command, run: x}\n  b: {kind: command, run: x}\n"
    assert one(tmp_path, text).startswith("exp.yaml:3: defaults.resources.time: leaves no time")
