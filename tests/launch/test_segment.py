"""The segment from its start to its exit code, with real processes and without a scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resiliency import artifact, contract

from .conftest import CLUSTER, RUN_ID, RunDir, until

WITH_CONTROL = [sys.executable, str(Path(__file__).with_name("with_control.py"))]

# Saves when told to, like a training program: takes a moment, then 75.
SAVES = """
trap 'sleep 0.3; echo saved >> {checkpoint_dir}/state; exit 75' TERM
echo ready
while :; do sleep 0.1; done
"""


def running(run_dir: RunDir, node: str = "local-0", word: str = "ready") -> bool:
    path = run_dir.paths.node_log("work", 1, 0, node)
    return path.exists() and word in path.read_text()


def test_a_command_that_ends_with_0_completes_its_stage(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "echo hello; echo out > {artifact_dir}/result.txt"])
    assert run_dir.run() == 0
    assert artifact.verifies(run_dir.paths.artifact("work"), kind="command")
    assert run_dir.state().stage("work").status == "complete"
    finished = run_dir.one("attempt.finished").data
    assert (finished["exit_code"], finished["category"], finished["rule"]) == (0, "healthy", "complete")
    assert run_dir.one("role.exited").data == {"role": "command", "exit_code": 0}
    assert "hello" in run_dir.node_log()


def test_0_without_an_artifact_is_not_complete(run_dir: RunDir, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('nothing made')")
    run_dir.stage(kind="pretrain", program=[str(program)], artifact_kind="model")
    assert run_dir.run() == 1
    finished = run_dir.one("attempt.finished").data
    assert finished["category"] == "code_error"
    assert "artifact does not verify" in finished["reason"]
    assert not run_dir.has("stage.completed")


@pytest.mark.parametrize(
    ("code", "category", "decision", "stops"),
    [
        (1, "unknown", "requeue", False),
        (76, "config_error", "stop", True),
        (17, "numeric", "stop", True),
        (127, "config_error", "stop", True),
    ],
)
def test_the_workloads_own_code_is_the_attempts(
    run_dir: RunDir, code: int, category: str, decision: str, stops: bool
) -> None:
    run_dir.stage(argv=["sh", "-c", f"exit {code}"])
    run_dir.queue(1, "17")
    assert run_dir.run() == code
    finished = run_dir.one("attempt.finished").data
    assert (finished["exit_code"], finished["category"]) == (code, category)
    assert finished["decision"] == decision
    assert run_dir.has("stage.stopped") == stops


def test_a_missing_command_needs_a_person(run_dir: RunDir) -> None:
    run_dir.stage(argv=["no-such-program-anywhere"])
    assert run_dir.run() == 127
    assert "No such file" in run_dir.one("attempt.finished").data["reason"]


def test_a_rank_killed_by_a_signal_is_128_plus_its_number(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "kill -SEGV $$"])
    assert run_dir.run() == 128 + signal.SIGSEGV
    assert run_dir.one("attempt.finished").data["decision"] == "requeue"


def test_three_unexplained_failures_stop_the_stage(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "exit 5"])
    for link in (1, 2, 3):
        run_dir.queue(link, str(link))
    assert [run_dir.run(link=n, job_id=str(n)) for n in (1, 2, 3)] == [5, 5, 5]
    assert run_dir.one("stage.stopped").data["rule"] == "budget:unexplained"
    assert run_dir.run(link=4, job_id="4") == 76  # a link that comes all the same finds it stopped


def test_the_time_limit_makes_a_command_save_and_end_with_75(run_dir: RunDir) -> None:
    run_dir.stage(argv=["bash", "-c", SAVES])
    run_dir.queue(1, "17")
    segment = run_dir.start()
    until(lambda: running(run_dir))
    segment.send(signal.SIGUSR2)
    assert segment.wait() == 75
    assert (run_dir.paths.checkpoints("work") / "state").read_text() == "saved\n"
    assert run_dir.one("drain.requested").data == {"reason": "time_limit", "signal": "USR2"}
    finished = run_dir.one("attempt.finished").data
    assert (finished["category"], finished["decision"]) == ("time_limit", "requeue")
    # 75 is the command's word that it made progress: chains of it never run out of budget
    assert all(past.progressed for past in run_dir.state().stage("work").history())


RANK = """
import os, sys, time
from resiliency.workload import Workload
work = Workload.from_env()
print("ready", flush=True)
for step in range(10_000):
    work.report(step=step, loss=1.0)
    if work.should_stop():
        if work.rank == 1:
            time.sleep(1.0)  # the slower to save
        work.event("checkpoint.committed", step=7, path="here", bytes=1, seconds=0.1)
        work.close()
        sys.exit(75)
    time.sleep(0.02)
"""


@pytest.fixture
def rank_program(tmp_path: Path) -> str:
    path = tmp_path / "rank_program.py"
    path.write_text(RANK)
    return str(path)


def test_two_nodes_are_both_told_to_stop(run_dir: RunDir, rank_program: str) -> None:
    run_dir.stage(kind="pretrain", program=[rank_program], nodes=2, launcher="none")
    segment = run_dir.start(nodes="local-0,local-1")
    until(lambda: running(run_dir) and running(run_dir, "local-1"))
    segment.send(signal.SIGUSR2)
    assert segment.wait() == 75
    exited = run_dir.events("role.exited")
    assert sorted((e.node, e.data["exit_code"]) for e in exited) == [("local-0", 75), ("local-1", 75)]
    assert run_dir.state().stage("work").chain()[0].progressed


@pytest.mark.parametrize("launcher", ["torchrun", "ft_launcher"])
def test_a_launcher_hides_neither_75_nor_the_slower_rank(
    run_dir: RunDir, rank_program: str, launcher: str
) -> None:
    pytest.importorskip("torch")
    if launcher == "ft_launcher":
        pytest.importorskip("nvidia_resiliency_ext")
    run_dir.stage(kind="pretrain", program=[rank_program], ranks_per_node=2, launcher=launcher)
    segment = run_dir.start()
    until(lambda: run_dir.paths.node_log("work", 1, 0, "local-0").exists()
          and run_dir.node_log().count("ready") == 2)  # fmt: skip
    # As Slurm's TERM to a step: every process gets it, launcher and ranks alike.
    for stray in segment.strays():
        if b"launch.supervisor" not in stray.encode() and "orchestrator.segment" not in stray:
            os.kill(int(stray.split()[0]), signal.SIGTERM)
    assert segment.wait() == 75
    assert run_dir.one("cycle.ended").data["codes"] == {"75": 2}
    assert run_dir.one("drain.requested").data["reason"] == "preempted"
    assert run_dir.one("attempt.finished").data["category"] == "preempted"


FAILS = """
import os, sys, time
rank = int(os.environ["RANK"])
if rank == 1:
    time.sleep(0.5)
    if "kill" in sys.argv[1:] or os.environ.get("HOW") == "kill":
        os.kill(os.getpid(), 9)
    raise ValueError("token=abcdefghijk is wrong")
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_launcher_does_not_hide_how_a_rank_died(run_dir: RunDir, tmp_path: Path, how: str) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    run_dir.stage(
        kind="pretrain", program=[str(program)], ranks_per_node=2, launcher="torchrun", env={"HOW": how}
    )
    assert run_dir.run() == (1 if how == "raise" else 137)
    reason = run_dir.one("attempt.finished").data["reason"]
    if how == "raise":
        assert "rank 1 on local-0: ValueError" in reason
        assert "abcdefghijk" not in reason


def test_what_ignores_the_order_to_stop_is_killed_with_all_its_children(run_dir: RunDir) -> None:
    script = "trap '' TERM; (trap '' TERM; setsid sleep 600 & sleep 600) & echo ready; wait; sleep 600"
    run_dir.stage(argv=["bash", "-c", script], grace_s=1.5)
    segment = run_dir.start()
    until(lambda: running(run_dir))
    segment.send(signal.SIGUSR2)
    assert segment.wait() == 137
    finished = run_dir.one("attempt.finished").data
    assert (finished["category"], finished["decision"]) == ("time_limit", "requeue")
    assert "did not save in time" in finished["reason"]


def test_what_a_command_leaves_running_ends_with_it(run_dir: RunDir) -> None:
    run_dir.stage(argv=["bash", "-c", "setsid sleep 600 & sleep 600 & exit 0"])
    assert run_dir.run() == 0  # the fixture looks for strays


def test_a_duplicate_refuses_to_work(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "echo x >> {stage_dir}/runs"])
    claim = run_dir.paths.claim(contract.token(RUN_ID, "work", 1))
    claim.parent.mkdir(parents=True)
    claim.write_text(json.dumps({"cluster": CLUSTER, "job_id": "99"}))
    assert run_dir.run(job_id="17") == 0
    assert run_dir.one("duplicate.refused").data["owner"] == f"{CLUSTER}/99"
    assert not (run_dir.paths.stage("work") / "runs").exists()
    assert not run_dir.has("attempt.started")


def test_a_requeued_job_keeps_its_claim(run_dir: RunDir) -> None:
    script = "test -e {stage_dir}/once && exit 0; touch {stage_dir}/once; exit 75"
    run_dir.stage(argv=["sh", "-c", script])
    assert run_dir.run(job_id="17", restart=0) == 75
    assert run_dir.run(job_id="17", restart=1) == 0
    attempts = [e.attempt for e in run_dir.events("attempt.started")]
    assert attempts == [f"{CLUSTER}/17.0", f"{CLUSTER}/17.1"]


def test_a_link_of_a_complete_stage_ends_at_once_and_cancels_what_is_left(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "exit 1"])
    artifact_dir = run_dir.paths.artifact("work")
    artifact_dir.mkdir(parents=True)
    artifact.seal(artifact_dir, "command")
    for link, job in ((1, "17"), (2, "18")):
        run_dir.queue(link, job)
    (run_dir.root / "state").write_text("RUNNING")
    assert run_dir.run(program=WITH_CONTROL) == 0
    assert run_dir.one("attempt.gate").data["verdict"] == "complete"
    assert run_dir.has("stage.completed")
    assert run_dir.one("link.cancelled").data["job_id"] == "18"
    assert (run_dir.root / "cancelled").read_text() == "18\n"
    assert not run_dir.has("role.started")


def test_a_link_waits_for_an_artifact_that_is_not_there(run_dir: RunDir) -> None:
    needed = run_dir.paths.artifact("data")
    run_dir.stage(argv=["sh", "-c", "exit 0"], inputs={"data": str(needed)}, input_kinds={"data": "dataset"})
    assert run_dir.run() == 75
    assert run_dir.one("attempt.gate").data["verdict"] == "wait"
    finished = run_dir.one("attempt.finished").data
    assert (finished["category"], finished["decision"]) == ("requeued", "requeue")
    needed.mkdir(parents=True)
    artifact.seal(needed, "model")  # of the wrong kind
    assert run_dir.run(link=2, job_id="18") == 75
    artifact.seal(needed, "dataset")
    assert run_dir.run(link=3, job_id="19") == 0


def test_a_stop_cancels_this_chain_and_what_waits_for_it(run_dir: RunDir) -> None:
    stages = [
        {"name": "work", "kind": "command", "needs": []},
        {"name": "later", "kind": "command", "needs": ["work"]},
        {"name": "last", "kind": "command", "needs": ["later"]},
        {"name": "apart", "kind": "command", "needs": []},
    ]
    run_dir.tell(("run.created", {"name": "quick", "stages": stages}, {}))
    (run_dir.paths.journal / "login-test.jsonl").unlink()
    run_dir.tell(("run.created", {"name": "quick", "stages": stages}, {}))
    run_dir.stage(argv=["sh", "-c", "exit 76"])
    for job, (stage, link) in enumerate(
        [("work", 1), ("work", 2), ("later", 1), ("last", 1), ("apart", 1)], start=17
    ):
        run_dir.queue(link, str(job), stage)
    (run_dir.root / "state").write_text("RUNNING")
    assert run_dir.run(program=WITH_CONTROL) == 76
    assert sorted((run_dir.root / "cancelled").read_text().split()) == ["18", "19", "20"]
    named = {e.data["token"]: e.stage for e in run_dir.events("link.cancelled")}
    assert named == {contract.token(RUN_ID, s, n): s for s, n in (("work", 2), ("later", 1), ("last", 1))}
    state = run_dir.state()
    assert state.stage("work").stopped and state.stage("apart").status == "queued"


def test_an_unreachable_scheduler_leaves_cancelling_to_the_next_reconcile(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "exit 0"])
    for link, job in ((1, "17"), (2, "18")):
        run_dir.queue(link, job)
    (run_dir.root / "unreachable").touch()
    segment = run_dir.start(program=WITH_CONTROL)
    assert segment.wait() == 0
    assert "the next reconcile will" in segment.text()
    assert run_dir.has("stage.completed") and run_dir.has("link.cancelled")


@pytest.mark.parametrize(
    ("state", "reason", "stops"),
    [("CANCELLED", "cancelled", True), ("PREEMPTED", "preempted", False)],
)
def test_term_is_a_persons_or_a_preemption(run_dir: RunDir, state: str, reason: str, stops: bool) -> None:
    run_dir.stage(argv=["bash", "-c", SAVES])
    for link, job in ((1, "17"), (2, "18")):
        run_dir.queue(link, job)
    (run_dir.root / "state").write_text(state)
    segment = run_dir.start(program=WITH_CONTROL)
    until(lambda: running(run_dir))
    segment.send(signal.SIGTERM)
    assert segment.wait() == 75
    assert run_dir.one("drain.requested").data == {"reason": reason, "signal": "TERM"}
    assert (run_dir.root / "cancelled").exists() == stops
    stage = run_dir.state().stage("work")
    assert stage.status == ("cancelled" if stops else "queued")
    if stops:
        assert run_dir.one("stage.stopped").data["rule"] == "user-cancelled"


def test_a_left_over_that_we_cancel_ourselves_does_not_stop_the_stage(run_dir: RunDir) -> None:
    run_dir.stage(argv=["bash", "-c", SAVES])
    for link, job in ((1, "17"), (2, "18")):
        run_dir.queue(link, job)
    (run_dir.root / "state").write_text("CANCELLED")
    segment = run_dir.start(program=WITH_CONTROL)
    until(lambda: running(run_dir))
    token = contract.token(RUN_ID, "work", 1)
    run_dir.tell(("link.cancelled", {"token": token, "job_id": "17", "reason": "x"}, {"stage": "work"}))
    segment.send(signal.SIGTERM)
    assert segment.wait() == 75
    assert not run_dir.has("stage.stopped")
    assert run_dir.one("attempt.finished").data["category"] == "planned_rollover"
    assert not (run_dir.root / "cancelled").exists()


def test_a_second_term_shortens_the_grace(run_dir: RunDir) -> None:
    run_dir.stage(argv=["bash", "-c", "trap '' TERM; echo ready; while :; do sleep 0.2; done"], grace_s=600)
    (run_dir.root / "state").write_text("PREEMPTED")
    segment = run_dir.start(program=WITH_CONTROL)
    until(lambda: running(run_dir))
    segment.send(signal.SIGTERM)
    until(lambda: run_dir.has("drain.requested"))
    segment.send(signal.SIGTERM)
    assert segment.wait(30) == 137


def test_a_node_that_vanishes_ends_the_attempt_soon(run_dir: RunDir, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import time; print('ready', flush=True); time.sleep(600)")
    run_dir.stage(kind="pretrain", program=[str(program)], nodes=2, launcher="none", grace_s=2)
    segment = run_dir.start(nodes="local-0,local-1")
    until(lambda: running(run_dir) and running(run_dir, "local-1"))
    agents = [s for s in segment.strays() if "launch.agent" in s and "local-1" in s]
    os.kill(int(agents[0].split()[0]), signal.SIGKILL)  # and its ranks die with it
    assert segment.wait() == 137
    finished = run_dir.one("attempt.finished").data
    assert "the agent on local-1 vanished" in finished["reason"]
    assert finished["decision"] == "requeue"


def test_a_failing_node_speaks_for_those_that_wait_for_it(run_dir: RunDir, tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text(FAILS.replace("raise ValueError", "sys.exit(17)\n    raise ValueError"))
    run_dir.stage(kind="pretrain", program=[str(program)], nodes=2, launcher="none", grace_s=2)
    assert run_dir.run(nodes="local-0,local-1") == 17
    assert run_dir.one("attempt.finished").data["category"] == "numeric"


def test_hostile_values_reach_the_command_as_they_are(run_dir: RunDir) -> None:
    nasty = "$(touch pwned) `id` '\"; rm -rf / #{}{0}{link:d}{stage_dir!r}\nnew line ünï"
    program = (
        "import json, os, sys; json.dump([sys.argv[1:], os.environ['NASTY'], os.environ['TRAINMASTER_RUN']],"
        " open(sys.argv[-1] + '/seen.json', 'w'))"
    )
    run_dir.stage(
        argv=[sys.executable, "-c", program, nasty, "{artifact_dir}"],
        env={"NASTY": nasty, "TRAINMASTER_RUN": "forged", "LD_X": "{link}"},
    )
    assert run_dir.run() == 0
    seen = json.loads((run_dir.paths.artifact("work") / "seen.json").read_text())
    assert seen == [[nasty, str(run_dir.paths.artifact("work"))], nasty, RUN_ID]


@pytest.mark.parametrize("argv", [["echo", "{input:nowhere}"], ["echo", "nul \0 byte"]], ids=["input", "nul"])
def test_a_command_that_cannot_be_started_needs_a_person(run_dir: RunDir, argv: list[str]) -> None:
    run_dir.stage(argv=argv)
    assert run_dir.run() == 76
    assert run_dir.one("stage.stopped").data["category"] == "config_error"


def test_secrets_passed_by_name_are_written_nowhere(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", 'test "${#MY_KEY}" = 17'], env_from=["MY_KEY"])
    assert run_dir.run(env={"MY_KEY": "s3cr3t-value-0123"}) == 0
    for path in run_dir.root.rglob("*"):
        if path.is_file():
            assert b"s3cr3t-value-0123" not in path.read_bytes(), path


def test_progress_of_a_command_is_read_from_its_output(run_dir: RunDir) -> None:
    line = " [2026-01-01 00:00:00] iteration       20/     100 | lm loss: 1.25E+00 | grad norm: 1 |"
    run_dir.stage(argv=["sh", "-c", f"echo '{line}'; exit 75"], progress="megatron-log")
    assert run_dir.run() == 75
    attempt = run_dir.state().stage("work").chain()[0]
    assert (attempt.step, attempt.loss, attempt.checkpoint_step) == (20, 1.25, 20)


def test_a_journal_that_cannot_be_written_does_not_end_the_work(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "echo done > {stage_dir}/done; exit 0"])
    # Directories in the place of this attempt's files: nothing of it can be journaled.
    for who in ("supervisor", "agent-local-0"):
        (run_dir.paths.journal / f"{CLUSTER}-17.0-{who}.jsonl").mkdir()
    segment = run_dir.start()
    assert segment.wait() == 0
    assert "going on without" in segment.text()
    assert (run_dir.paths.stage("work") / "done").exists()
    assert artifact.verifies(run_dir.paths.artifact("work"))


def test_starting_loads_neither_the_control_plane_nor_anything_heavy() -> None:
    code = (
        "import sys, orchestrator.segment, launch.agent; heavy = {'pydantic', 'typer', 'rich', 'jinja2',"
        " 'omegaconf', 'yaml', 'torch', 'numpy', 'submitit', 'sqlite3', 'orchestrator.runs'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_outside_an_allocation_it_says_so(run_dir: RunDir) -> None:
    run_dir.stage(argv=["true"])
    segment = run_dir.start(job_id="")
    assert segment.wait() == 2
    assert "not in an allocation" in segment.text()
