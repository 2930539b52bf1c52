"""Check: every kind of finding, made for real, with its next step."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger.check import check
from resiliency.contract import RunPaths
from resiliency.journal import JournalWriter
from tests.metrics.rundirs import RUN, make_run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    run_dir = make_run(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
    return tmp_path


def journal(home: Path, name: str = "rank0") -> Path:
    return RunPaths(home / "runs" / RUN).journal / f"{name}.jsonl"


def codes(home: Path) -> list[str]:
    found = check(home)
    assert all(finding.hint and finding.message for finding in found)
    return [finding.code for finding in found]


def test_a_sound_ledger_has_no_findings(home: Path) -> None:
    assert check(home) == []


def test_no_ledger(tmp_path: Path) -> None:
    assert codes(tmp_path) == ["unusable"]


def test_a_file_that_is_no_database(home: Path) -> None:
    (home / "ledger.db").write_bytes(b"x" * 9000)
    assert codes(home) == ["unusable"]


def test_a_damaged_page(home: Path) -> None:
    raw = bytearray((home / "ledger.db").read_bytes())
    for page in range(3 * 4096, len(raw), 4096):
        raw[page : page + 64] = b"\xff" * 64
    (home / "ledger.db").write_bytes(raw)
    assert codes(home)[0] in ("damaged", "unusable")


def test_rows_that_belong_to_nothing(home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("DELETE FROM stage WHERE stage = 'train'")
    assert codes(home)[0] == "orphans"


def test_journals_not_read_yet(home: Path) -> None:
    with JournalWriter(journal(home).parent, run=RUN, writer="new") as writer:
        writer.append("decision", {})
    assert codes(home) == ["behind"]


def test_a_journal_cut_short(home: Path) -> None:
    journal(home).write_bytes(journal(home).read_bytes()[:100])
    assert codes(home) == ["journal-cut"]


def test_a_journal_gone(home: Path) -> None:
    journal(home).unlink()
    assert codes(home) == ["journal-gone"]


def test_bad_and_unfinished_lines(home: Path) -> None:
    with journal(home).open("ab") as stream:
        stream.write(b"nonsense\nunfinished")
    with Ledger.open(home / "ledger.db") as ledger:
        ledger.ingest_run(home / "runs" / RUN)
    assert codes(home) == ["behind", "bad-lines", "unfinished-lines"]


def test_a_run_gone_and_a_run_missing(home: Path) -> None:
    make_run(home, "new-20260102-000000-0001")
    shutil.rmtree(home / "runs" / RUN)
    assert codes(home) == ["run-gone", "run-missing"]


def test_a_second_directory_of_a_run(home: Path) -> None:
    copy = home / "backup"
    shutil.copytree(home / "runs", copy)
    (home / "run-roots.jsonl").write_text('{"root": "' + str(copy) + '"}\n')
    assert codes(home) == ["run-twice"]


def test_job_numbers_that_started_anew(home: Path) -> None:
    other = make_run(home, "new-20260102-000000-0001")
    with Ledger.open(home / "ledger.db") as ledger:
        ledger.ingest_run(other)
    assert codes(home) == ["job-id-reused", "job-id-reused"]


def test_a_file_open_to_all(home: Path) -> None:
    (home / "ledger.db").chmod(0o666)
    assert codes(home) == ["open-to-all"]
