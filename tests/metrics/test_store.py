"""Opening the ledger: versions, the single writer, and every bad state with a sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger import queries as q
from metrics.ledger.migrations import MIGRATIONS, VERSION, migrate, version_of
from metrics.ledger.store import lock_path
from resiliency.contract import RunPaths
from resiliency.errors import LedgerError
from resiliency.journal import JournalWriter
from tests.metrics.rundirs import RUN, dump, make_run

ROOT = os.geteuid() == 0


def grow(run_dir: Path, count: int = 1) -> None:
    with JournalWriter(RunPaths(run_dir).journal, run=RUN, writer="rank0") as writer:
        for step in range(count):
            data = {"step": 100 + step, "loss": 1.0}
            writer.append("progress", data, stage="train", attempt="c1/7.1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one run in its ledger."""
    run_dir = make_run(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
    return tmp_path


def test_a_new_ledger_is_the_user_s_alone_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "home" / "ledger.db"
    Ledger.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with sqlite3.connect(path) as connection:
        assert version_of(connection) == VERSION
        assert connection.execute("PRAGMA application_id").fetchone()[0] == 0x54524D53
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_file_that_a_viewer_switched_to_wal_is_switched_back(home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with Ledger.open(home / "ledger.db") as ledger:
        assert ledger.rows("PRAGMA journal_mode")[0][0] == "delete"


def test_a_newer_version_is_refused_naming_both_and_the_next_step(home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    before = (home / "ledger.db").read_bytes()
    for readonly in (False, True):
        with pytest.raises(LedgerError) as caught:
            Ledger.open(home / "ledger.db", readonly=readonly)
        assert "schema 99" in caught.value.message
        assert f"up to {VERSION}" in caught.value.message
        assert "upgrade" in caught.value.hint
    assert (home / "ledger.db").read_bytes() == before


def test_another_program_s_sqlite_file_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(LedgerError, match="not a Trainmaster ledger"):
        Ledger.open(tmp_path / "ledger.db")


def test_migrations_run_in_order_from_any_version(home: Path) -> None:
    more = (lambda: ["ALTER TABLE run ADD COLUMN mood TEXT"], lambda: ["CREATE TABLE x (y)"])
    later = (*MIGRATIONS, *more)
    connection = sqlite3.connect(home / "ledger.db", isolation_level=None)
    assert migrate(connection, "ledger", later) == 2
    assert version_of(connection) == len(later)
    assert connection.execute("SELECT run_id, mood FROM run").fetchall() == [(RUN, None)]
    assert migrate(connection, "ledger", later) == 0


def test_a_migration_that_fails_leaves_the_file_as_it_was(home: Path) -> None:
    def broken() -> list[str]:
        return ["ALTER TABLE run ADD COLUMN mood TEXT", "SELECT nonsense FROM nowhere"]

    before = dump(home / "ledger.db")
    connection = sqlite3.connect(home / "ledger.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "ledger", (*MIGRATIONS, broken))
    assert version_of(connection) == VERSION
    assert dump(home / "ledger.db") == before


@pytest.fixture
def holder(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the writer's lock."""
    code = (
        "import sys, time; from pathlib import Path; from metrics.ledger.store import writer_lock\n"
        f"with writer_lock(Path({str(home / 'ledger.db')!r}), 0):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert process.stdout and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_while_another_writes_reading_works_and_writing_says_so(
    home: Path, holder: subprocess.Popen[str]
) -> None:
    grow(home / "runs" / RUN)
    with Ledger.open(home / "ledger.db", wait_s=0) as ledger:
        assert q.latest_run(ledger) is not None
        with pytest.raises(LedgerError, match="another command") as caught:
            ledger.ingest_run(home / "runs" / RUN)
        assert "nothing is lost" in caught.value.hint
        holder.send_signal(signal.SIGKILL)  # a killed writer's lock is gone with it
        holder.wait()
        assert ledger.ingest_run(home / "runs" / RUN).events == 1


def test_a_database_locked_by_another_program_is_said_so(home: Path) -> None:
    grow(home / "runs" / RUN)
    other = sqlite3.connect(home / "ledger.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with (
        pytest.raises(LedgerError, match="another process is using it"),
        Ledger.open(home / "ledger.db", wait_s=0.1) as ledger,
    ):
        ledger.ingest_run(home / "runs" / RUN)
    other.execute("ROLLBACK")


def test_writers_in_many_processes_lose_nothing(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"demo-20260101-000000-000{n}") for n in range(4)]
    code = (
        "import sys; from pathlib import Path; from metrics.ledger import Ledger\n"
        "for run in sys.argv[2:]:\n"
        "    with Ledger.open(Path(sys.argv[1]), wait_s=120) as ledger: ledger.ingest_run(Path(run))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "ledger.db"), *map(str, order)])
        for order in (runs, runs[::-1], runs[2:])
    ]
    assert [process.wait() for process in started] == [0, 0, 0]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert [ledger.ingest_run(run).events for run in runs] == [0, 0, 0, 0]
        assert ledger.rows("SELECT count(*) FROM event")[0][0] == 4 * 17


def test_killing_a_writer_anywhere_keeps_old_or_new(home: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from metrics.ledger import Ledger\n"
        "ledger = Ledger.open(Path(sys.argv[1])); print('go', flush=True)\n"
        "ledger.ingest_run(Path(sys.argv[2]))"
    )
    run_dir = home / "runs" / RUN
    argv = [sys.executable, "-c", code, str(home / "ledger.db"), str(run_dir)]
    for delay in (0.0, 0.005, 0.02, 0.05, 0.1):
        grow(run_dir, 1500)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
    with Ledger.open(home / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        live = dump(ledger)
    with Ledger.open(home / "fresh.db") as ledger:
        ledger.ingest_run(run_dir)
        assert dump(ledger) == live


@pytest.mark.parametrize("damage", ["garbage", "header", "cut"])
def test_a_damaged_file_says_so_and_how_to_repair_it(home: Path, damage: str) -> None:
    path = home / "ledger.db"
    raw = bytearray(path.read_bytes())
    if damage == "garbage":
        raw = bytearray(os.urandom(8192))
    elif damage == "header":
        raw[:16] = b"\0" * 16
    else:
        raw = raw[: len(raw) // 3]
    path.write_bytes(raw)
    with pytest.raises(LedgerError) as caught, Ledger.open(path) as ledger:
        grow(home / "runs" / RUN)
        ledger.ingest_run(home / "runs" / RUN)
        ledger.rows("SELECT * FROM attempt")
    assert "ledger rebuild" in caught.value.hint


def test_no_ledger_to_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger.open(tmp_path / "ledger.db", readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_opened_for_reading_refuses_to_write(home: Path) -> None:
    grow(home / "runs" / RUN)
    with Ledger.open(home / "ledger.db", readonly=True) as ledger:
        assert q.run_status(ledger, RUN).stages
        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.ingest_run(home / "runs" / RUN)


def test_a_read_only_ledger_is_read_and_says_why_it_is_not_written(home: Path) -> None:
    grow(home / "runs" / RUN)
    shared = Path("/tmp") / f"trainmaster-test-{os.getpid()}"
    shutil.copytree(home, shared)
    code = (
        "import os, sys, difflib; from pathlib import Path\n"
        "from metrics.ledger import Ledger, ingest, queries\n"  # while the packages can be read
        "from resiliency.errors import LedgerError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ledger = Ledger.open(Path(sys.argv[1]) / 'ledger.db')\n"
        "print(queries.latest_run(ledger).name)\n"
        "try: ledger.ingest_run(Path(sys.argv[1]) / 'runs' / sys.argv[2])\n"
        "except LedgerError as error: print(error)"
    )
    try:
        for path in [shared, *shared.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        argv = [sys.executable, "-c", code, str(shared), RUN]
        done = subprocess.run(argv, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("demo\n")
        assert "is read-only for you" in done.stdout and "nothing is lost" in done.stdout
    finally:
        for path in [shared, *shared.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(shared)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    where = tmp_path / "tiny"
    where.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    if not (ROOT and mount and subprocess.run([mount, *options], check=False).returncode == 0):
        pytest.skip("needs the right to mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_loses_nothing(tmp_path: Path, tiny: Path) -> None:
    run_dir = make_run(tmp_path)
    with Ledger.open(tiny / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        before = dump(ledger)
        grow(run_dir, 6_000)
        with pytest.raises(LedgerError) as caught:
            ledger.ingest_run(run_dir)
        assert "disk is full" in caught.value.message
        assert "free space" in caught.value.hint and "nothing is lost" in caught.value.hint
        assert dump(ledger) == before
        subprocess.run(["mount", "-o", "remount,size=64m", str(tiny)], check=True)
        assert ledger.ingest_run(run_dir).events == 6_000


def test_opening_the_ledger_loads_no_heavy_module() -> None:
    code = (
        "import sys, metrics.ledger.queries\n"
        "heavy = {'sqlite_utils', 'pydantic', 'rich', 'omegaconf', 'torch', 'numpy', 'typer'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_lock_lies_beside_the_ledger(tmp_path: Path) -> None:
    assert lock_path(tmp_path / "ledger.db") == tmp_path / "ledger.db.lock"


def test_who_only_reads_brings_an_older_ledger_up_to_date_if_they_may(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        migrate(old, str(path), migrations=MIGRATIONS[:1])
        assert version_of(old) == 1
    with Ledger.open(path, readonly=True) as ledger:
        assert version_of(ledger.connection) == VERSION
        with pytest.raises(LedgerError, match="cannot be written"), ledger.writing():
            pass
