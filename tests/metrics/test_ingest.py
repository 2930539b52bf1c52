"""Ingest: each line once, and the same rows whatever the portions, order and repetition."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.ledger import Ledger, project
from metrics.ledger import ingest as ingest_module
from metrics.ledger.schema import DERIVED
from resiliency import journal
from resiliency.contract import RunPaths
from resiliency.errors import StorageError
from resiliency.events import Event, encode
from resiliency.journal import JournalWriter
from resiliency.state import fold
from tests.metrics.rundirs import RUN, dump, lines, make_run, write
from tests.resiliency.histories import WRITERS, histories

#: Hundreds of small transactions: in memory where there is such a place, so that fsync costs nothing.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def fresh(run_dir: Path, where: Path) -> dict[str, list[tuple]]:
    """What one look at everything gives."""
    with Ledger.open(where / "fresh.db") as ledger:
        ledger.ingest_run(run_dir)
        return dump(ledger)


def as_files(events: list[Event], rng: random.Random) -> dict[str, bytes]:
    """Journals as they may be found: lines repeated and out of order, a copied file, garbage."""
    files: dict[str, bytes] = {}
    for writer in WRITERS:
        mine = [event for event in events if event.writer == writer]
        mine += rng.choices(mine, k=len(mine) // 3) if mine else []
        if rng.random() < 0.3:
            rng.shuffle(mine)
        raw = [encode(event).encode() for event in mine]
        for _ in range(rng.choice([0, 0, 1])):
            raw.insert(rng.randint(0, len(raw)), rng.choice([b"\0\0\0", b'{"v":1', b"\xff", b""]))
        files[writer] = b"".join(line + b"\n" for line in raw)
        if rng.random() < 0.2:
            files[f"{writer}-copy"] = files[writer]
    return files


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(), st.randoms(use_true_random=False))
def test_any_portions_give_the_rows_of_one_look(events: list[Event], rng: random.Random) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        where = Path(name)
        run_dir = write(where / RUN, {})
        files = as_files(events, rng)
        written = dict.fromkeys(files, 0)
        with Ledger.open(where / "live.db") as ledger:
            while any(written[name] < len(raw) for name, raw in files.items()):
                for file in rng.sample(sorted(files), k=rng.randint(1, len(files))):
                    # Any number of bytes: most portions end in the middle of a line.
                    written[file] = min(len(files[file]), written[file] + rng.randint(0, 6000))
                    write(run_dir, {file: files[file][: written[file]]})
                ledger.ingest_run(run_dir)
            ledger.ingest_run(run_dir)
            live = dump(ledger)
        assert live == fresh(run_dir, where)


@settings(max_examples=40, deadline=None)
@given(histories())
def test_facts_and_heads_fold_to_the_same_rows_as_everything(events: list[Event]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        where = Path(name)
        run_dir = write(where / RUN, {"all": lines(events)})
        known, _ = journal.read_run(RunPaths(run_dir).journal)
        wanted = project.rows(run_dir, known, fold(known))
        with Ledger.open(where / "ledger.db") as ledger:
            ledger.ingest_run(run_dir)
            for table in ("run", *DERIVED):
                rows = [dict(row) for row in ledger.rows(f"SELECT * FROM {table}")]
                expected = wanted.get(table, [])
                assert sorted(rows, key=repr) == sorted(
                    [{key: row[key] for key in (rows[0] if rows else row)} for row in expected],
                    key=repr,
                )


def test_nothing_new_means_nothing_read(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        first = ledger.ingest_run(run_dir)
        assert first.events == 17 and first.files_read == 2 and not first.problems
        second = ledger.ingest_run(run_dir)
        assert (second.events, second.files_read, second.duplicates) == (0, 0, 0)


def test_only_new_lines_are_read(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        with JournalWriter(RunPaths(run_dir).journal, run=RUN, writer="login-a") as writer:
            writer.append("decision", {"action": "requeue", "rule": "r"}, stage="train")
        report = ledger.ingest_run(run_dir)
    assert (report.events, report.files_read, report.duplicates) == (1, 1, 0)


def test_an_unfinished_line_waits_until_it_is_complete(tmp_path: Path) -> None:
    event = Event("decision", RUN, "w", 1, 1.0, 1.0, data={"rule": "x"})
    raw = lines([event])
    run_dir = write(tmp_path / RUN, {"w": raw[:-5]})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        report = ledger.ingest_run(run_dir)
        assert (report.events, report.torn_tails, report.problems) == (0, 1, [])
        assert ledger.ingest_run(run_dir).torn_tails == 1
        write(run_dir, {"w": raw})
        report = ledger.ingest_run(run_dir)
        assert (report.events, report.torn_tails) == (1, 0)


def test_bad_lines_are_kept_as_problems_with_their_place(tmp_path: Path) -> None:
    good = [Event("decision", RUN, "w", n, 1.0, 1.0) for n in (1, 2)]
    raw = lines(good[:1]) + b"garbage\n" + lines(good[1:])
    run_dir = write(tmp_path / RUN, {"w": raw})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        report = ledger.ingest_run(run_dir)
        assert report.events == 2 and len(report.problems) == 1
        assert "w.jsonl" in report.problems[0]
        assert f"byte {len(lines(good[:1]))}" in report.problems[0]
        assert ledger.ingest_run(run_dir).problems == []
        kept = ledger.rows('SELECT file, "offset", reason FROM journal_problem')
        assert [tuple(row) for row in kept] == [("w.jsonl", len(lines(good[:1])), "no checksum at the end")]


def test_a_journal_cut_short_is_read_again(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = RunPaths(run_dir).journal / "rank0.jsonl"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        raw = path.read_bytes()
        path.write_bytes(raw[: raw.index(b"\n", len(raw) // 2) + 1])
        report = ledger.ingest_run(run_dir)
        assert report.reread and any("cut or replaced" in text for text in report.problems)
        live = dump(ledger)
    assert live == fresh(run_dir, tmp_path)


def test_a_journal_replaced_by_a_longer_one_is_read_again(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = RunPaths(run_dir).journal / "rank0.jsonl"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        path.unlink()
        with JournalWriter(path.parent, run=RUN, writer="rank0") as writer:
            for step in range(60):
                writer.append("progress", {"step": step}, stage="train", attempt="c1/7.1")
        assert ledger.ingest_run(run_dir).reread
        live = dump(ledger)
    assert live == fresh(run_dir, tmp_path)


def test_a_number_used_twice_gives_the_same_row_in_either_order(tmp_path: Path) -> None:
    def event(loss: float) -> bytes:
        data = {"step": 5, "loss": loss}
        return lines(
            [Event("progress", RUN, "w", 1, 1.0, 1.0, "train", "c1/7.0", data=data)],
        )

    found = []
    for order in ((1.0, 2.0), (2.0, 1.0)):
        where = tmp_path / str(order[0])
        run_dir = write(where / RUN, {"a": event(order[0])})
        with Ledger.open(where / "ledger.db") as ledger:
            ledger.ingest_run(run_dir)
            write(run_dir, {"b": event(order[1])})
            report = ledger.ingest_run(run_dir)
            assert "used number 1 for two events" in report.problems[0]
            found.append((dump(ledger)["event"], dump(ledger)["stage"], dump(ledger)["attempt"]))
            loss = ledger.rows("SELECT loss FROM attempt")[0][0]
        events, _ = journal.read_run(RunPaths(run_dir).journal)
        assert fold(events).stages["train"].attempts["c1/7.0"].loss == loss
    assert found[0] == found[1]


def test_the_furthest_step_of_a_number_used_twice_is_that_of_the_event_kept(tmp_path: Path) -> None:
    def event(seq: int, step: int) -> Event:
        # The second is the earlier one, so that it counts for nothing but its step.
        return Event("progress", RUN, "w", seq, 3.0 - seq, 1.0, "train", "c1/7.0", data={"step": step})

    run_dir = write(tmp_path / RUN, {"a": lines([event(1, 9), event(2, 7)])})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        assert ledger.rows("SELECT step FROM attempt")[0][0] == 9
        write(run_dir, {"b": lines([event(1, 5)])})
        ledger.ingest_run(run_dir)
        events, _ = journal.read_run(RunPaths(run_dir).journal)
        assert ledger.rows("SELECT step FROM attempt")[0][0] == 7
        assert fold(events).stages["train"].attempts["c1/7.0"].step == 7
        live = dump(ledger)
    assert live == fresh(run_dir, tmp_path)


def test_progress_does_not_read_the_old_progress_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = make_run(tmp_path, steps=500)
    folded: list[int] = []

    def counting(events: list[Event]) -> object:
        folded.append(len(events))
        return fold(events)

    monkeypatch.setattr(ingest_module, "fold", counting)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
    assert folded == [13]  # 12 facts and the last of 500 words of progress


def test_a_run_that_moved_keeps_its_rows_and_offsets(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        moved = tmp_path / "elsewhere" / RUN
        moved.parent.mkdir()
        run_dir.rename(moved)
        with pytest.raises(StorageError, match="no such directory"):
            ledger.ingest_run(run_dir)
        report = ledger.ingest_run(moved)
        assert (report.events, report.reread) == (0, False)
        assert ledger.rows("SELECT run_dir FROM run")[0][0] == str(moved)


def test_a_copy_of_a_run_is_not_counted_twice(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    copy = make_run(tmp_path / "backup")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        before = dump(ledger)
        report = ledger.ingest_run(copy)
        assert "not read" in report.problems[0] and report.events == 0
        assert dump(ledger) == before


def test_text_that_sqlite_cannot_hold_does_not_stop_ingest(tmp_path: Path) -> None:
    data = {"token": f"{RUN}.train.001", "reason": "\ud800 \x00 λ", "epoch": 2**70}
    event = Event("submission.rejected", RUN, "w", 1, 1.0, 1.0, "train", data=data)
    run_dir = write(tmp_path / RUN, {"w": lines([event])})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        assert ledger.rows("SELECT reason FROM submission")[0][0] == "\\ud800 \x00 λ"


def test_a_long_journal_is_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run(tmp_path, steps=50)
    whole = fresh(run_dir, tmp_path)
    monkeypatch.setattr(ingest_module, "_WINDOW", 100)  # shorter than a line
    (tmp_path / "fresh.db").unlink()
    assert fresh(run_dir, tmp_path) == whole
