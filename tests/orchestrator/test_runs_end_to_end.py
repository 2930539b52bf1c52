"""What a user sees on the local scheduler, through the command line and real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resiliency import journal
from tests.person import Person, attempts, counter, stage


def running(status: dict, step: int = 1) -> bool:
    return any(a["state"] == "RUNNING" and (a["step"] or 0) >= step for a in attempts(status))


def chain(**more: object) -> dict:
    return {"startup": "1s", "save_time": "1s", "signal_lead": "3s", "interval_time": "1s", **more}


def test_wait_follows_a_run_to_its_end_and_says_where_the_files_are(person: Person) -> None:
    path = person.write(counter(steps=5))
    done = person.run("submit", str(path), "--cluster", "here", "--wait")
    assert "complete" in done.stdout and f"files: {person.home / 'runs'}" in done.stdout
    assert person.run("tick").stdout.strip() == "no unfinished runs"


def test_a_stage_rolls_over_by_wall_time_and_goes_on_where_it_saved(person: Person) -> None:
    args = ("--step-s", "0.1", "--every", "1000")
    run = person.submit(counter(steps=100, time_limit="8s", args=args, chain=chain()))
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    worked = [a for a in attempts(done) if a["gate"] == "go"]
    assert len(worked) >= 2
    assert [a["category"] for a in worked] == ["time_limit"] * (len(worked) - 1) + ["healthy"]
    assert [a["resumed_from"] for a in worked] == [0] + [a["step"] for a in worked[:-1]]


def test_where_jobs_may_submit_a_chain_needs_no_login_command(person: Person) -> None:
    person.profiles({"here": {"scheduler": "local", "advance": "job"}})
    args = ("--step-s", "0.1", "--every", "1000")
    one = chain(lookahead=1)
    experiment = counter(steps=100, time_limit="8s", args=args, chain=one)
    experiment["stages"]["after"] = {"kind": "command", "needs": "count", "run": ["true"]}
    run = person.submit(experiment)
    marker = person.home / "runs" / run / "stages" / "after" / "artifact" / "manifest.json"
    end = time.monotonic() + 120
    while not marker.exists():
        assert time.monotonic() < end, person.story(run)
        time.sleep(0.5)
    done = person.finish(run)
    assert done["status"] == "complete"
    assert len([a for a in attempts(done) if a["gate"] == "go"]) >= 2


def test_a_chain_that_saves_nothing_new_stops(person: Person) -> None:
    """It fails at the same step each time, with nothing saved: two equal failures are enough."""
    run = person.submit(counter(steps=50, args=("--fail-at", "3", "--every", "1000", "--step-s", "0.02")))
    done = person.finish(run)
    assert (done["status"], stage(done, "count")["rule"]) == ("stopped", "same-signature-same-step")
    # Both within one allocation: the second is a restart in it.
    assert len([a for a in attempts(done) if a["gate"] == "go"]) == 1
    found, _ = journal.read_run(Path(done["run_dir"]) / "journal")
    assert [event.data["cycle"] for event in found if event.type == "cycle.started"] == [0, 1]


def test_cancel_stops_and_resume_goes_on_from_the_saved_step(person: Person) -> None:
    run = person.submit(counter(steps=60, args=("--step-s", "0.1", "--every", "5"), chain=chain()))
    person.until(run, lambda s: running(s, 10))
    person.run("cancel", run)
    done = person.finish(run)
    assert done["status"] == "cancelled"
    person.run("cancel", run)  # again: nothing to do, no error
    first = max(a["step"] or 0 for a in attempts(done))
    assert "count" in person.run("resume", run).stdout
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    assert attempts(done)[-1]["cancelled_by_us"] or attempts(done)[-1]["step"] == 60
    finisher = next(a for a in attempts(done) if a["category"] == "healthy")
    assert first - 5 <= finisher["resumed_from"] <= 60 and finisher["resumed_from"] >= 10


def test_a_failing_config_stops_downstream_and_status_has_the_exit_code(person: Person) -> None:
    experiment = counter(args=("--config-error",))
    experiment["stages"]["after"] = {"kind": "command", "needs": "count", "run": ["true"]}
    path = person.write(experiment)
    done = person.run("submit", str(path), "--cluster", "here", "--wait", check=False)
    assert done.returncode == 10
    assert "hidden_size 65 cannot be split over 2 heads" in done.stdout
    assert "resume" in done.stdout  # the next step
    run = json.loads(person.run("status", "--json").stdout)["runs"][0]["run_id"]
    assert person.run("status", run, "--exit-code", check=False).returncode == 10
    assert stage(person.status(run), "after")["rule"] == "needs:count"


def test_ctrl_c_ends_the_display_and_not_the_run(person: Person) -> None:
    path = person.write(counter(steps=30, args=("--step-s", "0.1")))
    argv = [sys.executable, "-m", "orchestrator", "submit", str(path), "--cluster", "here", "--wait"]
    process = subprocess.Popen(
        argv, env=person.env, cwd=person.workdir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "running" in line:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "goes on" in err
    run = json.loads(person.run("status", "--json").stdout)["runs"][0]["run_id"]
    assert person.finish(run)["status"] == "complete"


def test_the_same_submit_twice_is_one_run_and_new_makes_another(person: Person) -> None:
    experiment = counter(steps=1000)
    one = person.submit(experiment)
    assert person.submit(experiment) == one
    two = person.submit(experiment, "--new")
    assert two != one
    person.run("cancel", one)
    person.run("cancel", two)


def test_two_submits_at_once_make_one_run(person: Person) -> None:
    path = person.write(counter(steps=5))
    argv = [sys.executable, "-m", "orchestrator", "submit", str(path), "--cluster", "here", "--json"]
    both = [
        subprocess.Popen(argv, env=person.env, cwd=person.workdir, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    runs = {json.loads(process.communicate(timeout=120)[0])["run"] for process in both}
    assert len(runs) == 1
    assert person.finish(runs.pop())["status"] == "complete"


def test_ticks_at_once_submit_no_link_twice(person: Person) -> None:
    run = person.submit(
        counter(
            steps=40,
            time_limit="8s",
            args=(
                "--step-s",
                "0.1",
            ),
            chain=chain(),
        )
    )
    argv = [sys.executable, "-m", "orchestrator", "tick"]
    while json.loads(person.run("status", run, "--json").stdout)["status"] not in ("complete", "stopped"):
        ticks = [
            subprocess.Popen(argv, env=person.env, cwd=person.workdir, stdout=subprocess.DEVNULL)
            for _ in range(3)
        ]
        assert {tick.wait(timeout=60) for tick in ticks} == {0}
    with sqlite3.connect(person.home / "local" / "queue.db") as db:
        counts = db.execute("SELECT token, count(*) FROM job GROUP BY token").fetchall()
    assert {count for _, count in counts} == {1}


def test_an_old_ledger_brought_back_makes_no_job_twice_and_loses_none(person: Person) -> None:
    run = person.submit(
        counter(
            steps=40,
            args=(
                "--step-s",
                "0.1",
            ),
        )
    )
    shutil.copy(person.home / "ledger.db", person.workdir / "old.db")
    person.until(run, lambda s: running(s, 10))
    shutil.copy(person.workdir / "old.db", person.home / "ledger.db")
    person.run("tick")
    assert person.finish(run)["status"] == "complete"
    with sqlite3.connect(person.home / "local" / "queue.db") as db:
        counts = db.execute("SELECT token, count(*) FROM job GROUP BY token").fetchall()
    assert {count for _, count in counts} == {1}


def _dump(ledger: Path) -> dict[str, list]:
    """Every table's rows, without bookkeeping of files."""
    with sqlite3.connect(ledger) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        skip = {"journal_file", "journal_problem", "sqlite_sequence", "sqlite_stat1"}
        return {n: sorted(map(repr, db.execute(f"SELECT * FROM {n}"))) for n in names if n not in skip}


def test_a_rebuilt_ledger_has_the_rows_of_the_live_one(person: Person) -> None:
    good = person.submit(counter("good", steps=5))
    bad = person.submit(counter("bad", args=("--config-error",)))
    person.finish(good)
    person.finish(bad)
    person.run("tick", "--all")
    live = _dump(person.home / "ledger.db")
    (person.home / "ledger.db").unlink()
    person.run("ledger", "rebuild")
    assert _dump(person.home / "ledger.db") == live
    assert live["attempt"] and live["submission"] and live["event"]
    assert person.run("ledger", "check").returncode == 0


def test_a_ledger_that_cannot_be_written_stops_nothing(person: Person) -> None:
    run = person.submit(counter(steps=5))
    ledger = person.home / "ledger.db"
    ledger.write_bytes(b"this is not a database, not at all, though long enough to be one" * 40)
    done = person.run("tick", check=False)
    assert "rebuild" in done.stderr and "nothing is lost" in done.stderr
    assert person.finish(run)["status"] == "complete"
    person.run("ledger", "rebuild")
    assert json.loads(person.run("status", "--json").stdout)["runs"][0]["status"] == "complete"


def test_a_ledger_of_a_newer_version_is_refused_with_a_sentence(person: Person) -> None:
    run = person.submit(counter(steps=3))
    person.finish(run)
    with sqlite3.connect(person.home / "ledger.db") as db:
        db.execute("PRAGMA user_version = 999")
    done = person.run("status", check=False)
    assert done.returncode == 6 and "999" in done.stderr and "newer" in done.stderr
    assert person.status(run)["status"] == "complete"  # the run's own journal still answers


def test_a_locked_ledger_is_named_and_loses_nothing(person: Person) -> None:
    run = person.submit(counter(steps=3))
    person.until(run, lambda s: s["status"] == "complete")
    with sqlite3.connect(person.home / "ledger.db", isolation_level=None) as db:
        db.execute("BEGIN EXCLUSIVE")
        done = person.run("status", "--no-refresh", check=False)
        db.execute("ROLLBACK")
    assert done.returncode == 6 and "another process" in done.stderr
    assert person.run("status").returncode == 0


def test_a_secret_passed_by_name_is_in_no_file_and_in_the_job(person: Person) -> None:
    secret = "s3cr3t-value-0123456789"
    experiment = {
        "name": "secret",
        "stages": {
            "use": {
                "kind": "command",
                # The job proves that it has the value without writing it.
                "run": [
                    "bash",
                    "-c",
                    '[ "$(printf %s "$WANDB_API_KEY" | wc -c)" = 23 ] && echo "length is right"',
                ],
                "env_from": ["WANDB_API_KEY"],
            }
        },
    }
    path = person.write(experiment)
    argv = ("submit", str(path), "--cluster", "here", "--wait")
    missing = person.run(*argv, check=False)
    assert missing.returncode == 3 and "WANDB_API_KEY" in missing.stderr and "export" in missing.stderr
    done = person.run(*argv, env={"WANDB_API_KEY": secret})
    assert "complete" in done.stdout
    assert "length is right" in person.run("logs").stdout
    for file in person.home.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


def test_logs_redact_what_a_program_prints(person: Person) -> None:
    run = person.submit(
        {"name": "leak", "stages": {"one": {"kind": "command", "run": ["echo", "API_KEY=abcdef0123456789"]}}}
    )
    person.finish(run)
    shown = person.run("logs", run).stdout
    assert "API_KEY=[redacted]" in shown and "abcdef0123456789" not in shown


def test_run_directories_are_the_users_alone(person: Person) -> None:
    run = person.submit(counter(steps=2))
    person.finish(run)
    assert (person.home / "runs" / run).stat().st_mode & 0o777 == 0o700
    assert (person.home / "ledger.db").stat().st_mode & 0o077 == 0
    for path in (person.home / "runs" / run / "journal").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_run_with_a_group_can_be_read_by_it_and_by_nobody_else(person: Person) -> None:
    import grp

    group = grp.getgrgid(os.getgroups()[0] if os.geteuid() else 1).gr_name
    path = person.write({**counter(steps=2), "group": group})
    done = person.run("submit", str(path), "--cluster", "here", "--wait")
    assert f"group {group} cannot enter" in done.stderr  # its home is closed to everybody
    run_dir = next((person.home / "runs").glob("count-*"))
    for file in [run_dir, *run_dir.rglob("*")]:
        mode = file.stat().st_mode
        assert grp.getgrgid(file.stat().st_gid).gr_name == group, file
        assert mode & 0o040, file
        if file.is_file() and "artifact" not in file.parts and "state" not in file.parts:
            assert not mode & 0o007, file  # what we write; a user's command has its own umask


def test_three_links_that_save_nothing_stop_the_chain(person: Person) -> None:
    quiet = chain(signal_lead="1s", lookahead=2)
    run = person.submit(
        {
            "name": "idle",
            "stages": {
                "idle": {
                    "kind": "command",
                    "run": ["sleep", "600"],
                    "resources": {"time": "4s"},
                    "chain": {**quiet, "startup": "0s"},
                }
            },
        }
    )
    done = person.finish(run)
    assert (done["status"], stage(done, "idle")["rule"]) == ("stopped", "budget:no-progress")
    assert len([a for a in attempts(done, "idle") if a["gate"] == "go"]) == 3


def test_an_unwritable_runs_directory_is_named_with_the_next_step(person: Person) -> None:
    (person.workdir / "a-file").write_text("")
    person.profiles({"here": {"scheduler": "local", "runs_dir": str(person.workdir / "a-file" / "runs")}})
    path = person.write(counter())
    done = person.run("submit", str(path), "--cluster", "here", check=False)
    assert done.returncode == 5
    assert "a-file" in done.stderr and "next:" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which needs root")
def test_a_full_disk_is_named_and_nothing_is_half_submitted(person: Person) -> None:
    small = person.workdir / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        person.profiles({"here": {"scheduler": "local", "runs_dir": str(small / "runs")}})
        (small / "fill").write_bytes(b"x" * 56 * 1024)
        path = person.write(counter(steps=2))
        done = person.run("submit", str(path), "--cluster", "here", check=False)
        assert done.returncode == 5 and "No space left" in done.stderr and "free space" in done.stderr
        (small / "fill").unlink()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        run = person.submit(counter(steps=2))
        assert person.finish(run)["status"] == "complete"
    finally:
        time.sleep(0.5)
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_sites_limit_on_queued_jobs_is_kept_and_said(person: Person) -> None:
    person.profiles({"here": {"scheduler": "local", "max_queued_jobs": 2}})
    experiment = counter(steps=5)
    count = experiment["stages"].pop("count")
    experiment["stages"] = {f"s{number}": count for number in range(3)}
    done = person.run("submit", str(person.write(experiment)), "--cluster", "here")
    assert "max_queued_jobs = 2" in done.stderr
    with sqlite3.connect(person.home / "local" / "queue.db") as db:
        assert db.execute("SELECT count(*) FROM job").fetchone() == (2,)
    run = json.loads(person.run("status", "--json").stdout)["runs"][0]["run_id"]
    assert person.finish(run)["status"] == "complete"


def test_a_clean_dry_run_writes_nothing(person: Person) -> None:
    path = person.write(counter())
    before = sorted(p.name for p in person.home.iterdir())
    done = person.run("submit", str(path), "--cluster", "here", "--dry-run")
    assert "node-hours" in done.stdout
    assert sorted(p.name for p in person.home.iterdir() if p.name != "local") == before


def test_help_has_an_example_for_every_verb(person: Person) -> None:
    verbs = [
        "init",
        "validate",
        "plan",
        "submit",
        "status",
        "logs",
        "cancel",
        "resume",
        "tick",
        "doctor",
        "clusters",
        "schema",
        "version",
    ]
    for verb in (*verbs, "ledger check", "ledger rebuild", "ledger export"):
        assert "Example" in person.run(*verb.split(), "--help").stdout, verb
