"""The heartbeat: what it counts as a pass, and that it never gets in the training's way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resiliency import contract
from resiliency.heartbeat import Feed, Heartbeat
from resiliency.steprecord import Recorder, Snapshot, path_of, read


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time_() -> Time:
    return Time()


@pytest.fixture
def heart(tmp_path: Path, time_: Time) -> Heartbeat:
    return Heartbeat(Recorder(path_of(tmp_path, 0), 0), now=time_)


def seen(tmp_path: Path) -> Snapshot:
    found = read(path_of(tmp_path, 0))
    assert found is not None
    return found


def test_a_rank_is_in_setup_from_the_start(tmp_path: Path, heart: Heartbeat) -> None:
    assert (seen(tmp_path).section, seen(tmp_path).beats, seen(tmp_path).step) == ("setup", 0, None)


def test_a_step_is_a_beat_and_carries_what_is_known(tmp_path: Path, heart: Heartbeat, time_: Time) -> None:
    time_.passes(5)
    heart.step(1, loss=3.5, tokens=640)
    now = seen(tmp_path)
    assert (now.section, now.step, now.loss, now.tokens, now.beats) == ("step", 1, 3.5, 640, 1)
    assert (now.entered, now.beat) == (105.0, 105.0)
    assert now.slowest == {}  # how long a start took is no measure of anything that follows


def test_the_first_pass_of_the_step_is_no_measure_of_the_others(
    tmp_path: Path, heart: Heartbeat, time_: Time
) -> None:
    heart.section("step")
    time_.passes(90)  # compiles
    heart.step(1)
    assert "step" not in seen(tmp_path).slowest and seen(tmp_path).step_times == ()
    for seconds in (1.0, 3.0, 2.0):
        time_.passes(seconds)
        heart.step(2)
    assert seen(tmp_path).slowest == {"step": 3.0}
    assert seen(tmp_path).step_times == (1.0, 3.0, 2.0)


def test_a_section_within_a_step_is_not_the_step_s_time(
    tmp_path: Path, heart: Heartbeat, time_: Time
) -> None:
    heart.step(1)
    heart.step(2)
    time_.passes(1)
    with heart.section("checkpoint"):
        assert seen(tmp_path).section == "checkpoint"
        time_.passes(60)
    assert (seen(tmp_path).section, seen(tmp_path).entered) == ("step", 161.0)
    time_.passes(2)
    heart.step(3)
    now = seen(tmp_path)
    assert now.step_times[-1] == 3.0
    assert now.slowest == {"checkpoint": 60.0, "step": 3.0}


def test_sections_nest_and_an_exception_leads_back(tmp_path: Path, heart: Heartbeat, time_: Time) -> None:
    heart.section("eval")
    with pytest.raises(RuntimeError), heart.section("data"):
        raise RuntimeError
    assert seen(tmp_path).section == "eval"


def test_the_same_section_again_is_a_pass_of_it(tmp_path: Path, heart: Heartbeat, time_: Time) -> None:
    heart.section("eval", 10)
    before = seen(tmp_path).beats
    time_.passes(4)
    heart.section("eval", 20)
    now = seen(tmp_path)
    assert (now.beats, now.step, now.beat) == (before + 1, 20, 104.0)
    assert now.slowest["eval"] == 4.0


def test_a_plain_section_lasts_until_the_next_step(tmp_path: Path, heart: Heartbeat, time_: Time) -> None:
    for step in (1, 2, 3):
        heart.step(step)
    heart.section("checkpoint", 3)
    time_.passes(30)
    heart.step(4)
    now = seen(tmp_path)
    assert now.section == "step" and now.slowest["checkpoint"] == 30.0
    assert now.slowest["step"] == 0.0 and 30.0 not in now.step_times


def test_in_a_collective_is_marked_and_no_beat(tmp_path: Path, heart: Heartbeat, time_: Time) -> None:
    heart.step(1)
    heart.step(2)
    beats = seen(tmp_path).beats
    time_.passes(1)
    with heart.collective():
        with heart.collective():
            assert seen(tmp_path).in_collective
        assert seen(tmp_path).in_collective and seen(tmp_path).beats == beats
        time_.passes(5)
    assert not seen(tmp_path).in_collective and seen(tmp_path).collectives == 1
    heart.step(3)
    assert (seen(tmp_path).step_times[-1], seen(tmp_path).compute_times[-1]) == (6.0, 1.0)
    time_.passes(2)
    heart.step(4)
    assert seen(tmp_path).compute_times[-1] == 2.0  # the wait was the step's before


def test_a_loop_that_measures_better_is_believed(tmp_path: Path, heart: Heartbeat) -> None:
    heart.step(1)
    heart.step(2, seconds=4.0, compute_s=1.5)
    heart.step(3, seconds=4.0, compute_s=1.5)
    assert (seen(tmp_path).step_times[-1], seen(tmp_path).compute_times[-1]) == (4.0, 1.5)


def test_done_is_the_last_word(tmp_path: Path, heart: Heartbeat) -> None:
    heart.step(9)
    heart.close()
    heart.close()
    heart.step(10)
    with heart.section("eval"), heart.collective():
        pass
    assert (seen(tmp_path).section, seen(tmp_path).step) == ("done", 9)


@pytest.mark.parametrize("recorded", [True, False])
def test_time_is_added_up_by_section_once_somebody_asks(
    tmp_path: Path, heart: Heartbeat, time_: Time, recorded: bool
) -> None:
    heart = heart if recorded else Heartbeat(None, now=time_)
    time_.passes(100.0)
    assert heart.spent() == {}
    heart.account()
    time_.passes(2.0)
    heart.section("compile", 0)
    time_.passes(5.0)
    for step in range(1, 4):
        heart.step(step)
        time_.passes(1.0)
        heart.waited("data", 0.25)
        with heart.section("checkpoint"):
            time_.passes(0.5)
    time_.passes(0.125)
    assert heart.spent() == {"setup": 2.0, "compile": 5.0, "step": 2.375, "data": 0.75, "checkpoint": 1.5}
    for n in range(100):
        heart.section(f"made up {n}")
        time_.passes(1.0)
    found = heart.spent()
    assert len(found) <= 34 and sum(found.values()) == pytest.approx(111.625)


def test_without_a_place_for_records_all_is_a_no_op(tmp_path: Path) -> None:
    heart = Heartbeat.from_env({})
    heart.step(1, loss=1.0)
    with heart.section("eval"), heart.collective():
        heart.section("x")
    heart.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env", [{"RANK": "x"}, {contract.ENV_RECORDS: "/nonexistent/x"}])
def test_a_place_that_cannot_be_used_costs_the_heartbeat_not_the_training(
    tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    heart = Heartbeat.from_env({contract.ENV_RECORDS: str(tmp_path), **env})
    heart.step(1)
    assert "no heartbeats" in capsys.readouterr().err


def test_nonsense_ends_the_heartbeat_not_the_training(
    tmp_path: Path, heart: Heartbeat, capsys: pytest.CaptureFixture[str]
) -> None:
    heart.step(1)
    heart.step("two")  # type: ignore[arg-type]
    heart.step(3)
    assert seen(tmp_path).step == 1 and capsys.readouterr().err.count("heartbeats end") == 1


def test_an_array_s_loss_is_not_asked_for(tmp_path: Path, heart: Heartbeat) -> None:
    class OnDevice:
        def __float__(self) -> float:
            raise AssertionError("this would wait for the device")

    heart.step(1, loss=OnDevice())  # type: ignore[arg-type]
    assert (seen(tmp_path).step, seen(tmp_path).loss) == (1, None)


# -- NVRx's monitor ----------------------------------------------------------------------------

_FAKE = """
import os
said = []
class RankMonitorClient:
    def init_workload_monitoring(self):
        said.append("init")
    def send_heartbeat(self):
        said.append("beat")
        if os.environ.get("BREAKS"):
            raise RuntimeError("gone")
    def shutdown_workload_monitoring(self):
        said.append("end")
"""


@pytest.fixture
def nvrx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in with NVRx's client interface; the real one has a test below."""
    package = tmp_path / "fake" / "nvidia_resiliency_ext"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "fault_tolerance.py").write_text(_FAKE)
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    for name in [name for name in sys.modules if name.startswith("nvidia_resiliency_ext")]:
        monkeypatch.delitem(sys.modules, name)
    import nvidia_resiliency_ext.fault_tolerance as fake

    yield fake.said  # type: ignore[misc]
    for name in [name for name in sys.modules if name.startswith("nvidia_resiliency_ext")]:
        del sys.modules[name]


def until(condition: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.01)
    assert condition()  # type: ignore[operator]


def test_nvrx_hears_new_beats_only(nvrx: list[str]) -> None:
    beats = 0
    feed = Feed(lambda: beats, interval_s=0.01)
    until(lambda: nvrx == ["init"])
    time.sleep(0.1)
    assert nvrx == ["init"]  # a rank that stands still is silent
    beats = 50
    until(lambda: nvrx == ["init", "beat"])
    time.sleep(0.1)
    feed.close()
    assert nvrx == ["init", "beat", "end"] and feed.problem is None


def test_an_nvrx_that_breaks_is_let_be(nvrx: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKS", "1")
    feed = Feed(lambda: 1, interval_s=0.01)
    until(lambda: feed.problem is not None)
    feed.close()
    assert nvrx == ["init", "beat"]


def test_nvrx_is_fed_only_from_the_first_step_and_where_torch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def feed(beats: object) -> Feed:
        made.append("feed")
        return None  # type: ignore[return-value]

    for loaded in (False, True):
        if loaded:
            monkeypatch.setitem(sys.modules, "torch", sys)
        else:
            monkeypatch.delitem(sys.modules, "torch", raising=False)
        heart = Heartbeat(Recorder(path_of(tmp_path, 0), 0), feed=feed)
        heart.section("load")
        assert made == []
        heart.step(1)
        heart.step(2)
        assert made == (["feed"] if loaded else [])


_REAL = """
import os, sys, time
from resiliency.heartbeat import Heartbeat
import torch
heart = Heartbeat.from_env()
for step in range(1, 60):
    heart.step(step)
    if heart._feed is not None and (heart._feed.sent >= 2 or heart._feed.problem):
        break
    time.sleep(0.1)
heart.close()
print("sent", heart._feed.sent, "problem", heart._feed.problem)
"""


@pytest.mark.slow
def test_the_real_rank_monitor_is_fed(tmp_path: Path) -> None:
    pytest.importorskip("nvidia_resiliency_ext.fault_tolerance")
    program = tmp_path / "train.py"
    program.write_text(_REAL)
    config = tmp_path / "ft.yaml"
    config.write_text("fault_tolerance: {initial_rank_heartbeat_timeout: 60, rank_heartbeat_timeout: 60}\n")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nvidia_resiliency_ext.fault_tolerance.launcher"),
            *(
                "--nnodes",
                "1",
                "--nproc-per-node",
                "1",
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                "localhost:0",
            ),
            *("--max-restarts", "0", "--ft-cfg-path", str(config), str(program)),
        ],
        env={**os.environ, contract.ENV_RECORDS: str(tmp_path), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "sent 2 problem None" in done.stdout + done.stderr, done.stdout + done.stderr
    assert seen(tmp_path).section == "done"
