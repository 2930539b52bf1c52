"""Export: each format read back equals the ledger."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger.export import export, table_names
from resiliency.errors import NotFound, StorageError, UsageError
from tests.metrics.rundirs import dump, make_run


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(make_run(tmp_path))
        yield ledger


def stored(ledger: Ledger, table: str) -> list[dict[str, object]]:
    return [dict(row) for row in ledger.rows(f"SELECT * FROM {table}")]


def test_json_of_one_and_of_several_tables(ledger: Ledger, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert export(ledger, "json", out, tables=["attempt"]) == [out]
    assert json.loads(out.read_text()) == stored(ledger, "attempt")
    export(ledger, "json", out, tables=["run", "chain"])
    found = json.loads(out.read_text())
    assert found == {"run": stored(ledger, "run"), "chain": stored(ledger, "chain")}


def test_json_lines(ledger: Ledger, tmp_path: Path) -> None:
    export(ledger, "jsonl", tmp_path / "e.jsonl", tables=["event"])
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == stored(ledger, "event")


def test_csv_of_every_table(ledger: Ledger, tmp_path: Path) -> None:
    made = export(ledger, "csv", tmp_path / "out")
    assert {path.stem for path in made} >= {"run", "stage", "attempt", "evaluation"}
    assert "event" not in {path.stem for path in made}  # the bulk only when asked for
    with (tmp_path / "out" / "stage.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    wanted = stored(ledger, "stage")
    assert [row["reason"] for row in rows] == [row["reason"] or "" for row in wanted]
    assert rows[0].keys() == wanted[0].keys()


def test_a_copy_of_the_file_is_a_ledger(ledger: Ledger, tmp_path: Path) -> None:
    out = tmp_path / "copy.db"
    export(ledger, "sqlite", out)
    assert dump(out) == dump(ledger)
    Ledger.open(out, readonly=True).close()


def test_standard_output(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(ledger, "csv", tables=["run"]) == []
    assert capsys.readouterr().out.startswith("run_id,name,status")


def test_faults_name_the_next_step(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format"):
        export(ledger, "xml")
    with pytest.raises(NotFound, match="no table") as caught:
        export(ledger, "csv", tables=["atempt"])
    assert "did you mean attempt?" in caught.value.hint
    with pytest.raises(UsageError, match="needs a directory"):
        export(ledger, "csv")
    with pytest.raises(UsageError, match="file name"):
        export(ledger, "sqlite")
    with pytest.raises(UsageError, match="the ledger itself"):
        export(ledger, "sqlite", ledger.path)
    with pytest.raises(StorageError):
        export(ledger, "json", tmp_path / "nowhere" / "out.json", tables=["run"])
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError):
        export(ledger, "csv", blocked)


def test_tables_and_views_can_be_named(ledger: Ledger) -> None:
    assert {"run", "event", "chain", "timeline"} <= set(table_names(ledger))


def test_sqlite_utils_opens_it_as_it_is(ledger: Ledger) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sqlite_utils", "query", str(ledger.path), "select count(*) n from chain"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout) == [{"n": 2}], done.stderr
