"""models.prepare_text as a process: real splits, idempotent, and clear about what it cannot use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.data.indexed import read_tokens
from models.data.tokenizer import load, train
from tests.models.programs import Program

SPEC = {"kind": "text", "vocab_size": 300, "split": {"valid": 0.1, "test": 0.1}}


def documents(artifact: Path, split: str) -> list[str]:
    """The texts of a split, decoded from its tokens."""
    ids = read_tokens(artifact / split).tolist()
    texts: list[list[int]] = [[]]
    for token in ids:
        if token == 0:
            texts.append([])
        else:
            texts[-1].append(token)
    assert texts.pop() == []  # every document ends with the end-of-document token
    return [load(artifact / "tokenizer.json").decode(text) for text in texts]


def test_documents_come_back_byte_for_byte_and_each_in_one_split(dataset: Path, corpus: Path) -> None:
    meta = json.loads((dataset / "dataset.json").read_text())
    found: list[str] = []
    for split, counts in meta["splits"].items():
        texts = documents(dataset, split)
        assert len(texts) == counts["documents"] > 0
        assert sum(len(text.encode()) for text in texts) == counts["bytes"]
        assert len(read_tokens(dataset / split)) == counts["tokens"]
        found += texts
    assert sorted(found) == sorted(path.read_text(encoding="utf-8") for path in corpus.iterdir())
    assert meta["vocab_size"] == 320


@pytest.mark.slow
def test_rerun_rebuild_copies_and_undecodable_files(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(12):
        (source / f"{number:02d}.txt").write_text(f"document {number} says <|endoftext|> " * 40)
    (source / "copy.txt").write_text((source / "03.txt").read_text())
    (source / "latin.txt").write_bytes(b"caf\xe9 " * 50)
    first = Program("prepare_text", tmp_path / "a", {**SPEC, "inputs": [str(source)]}, {})
    done = first.run(**first.journal_env("one"))
    assert done.returncode == 0, done.stderr
    assert "left out 1 not UTF-8" in done.stdout
    assert "1 copies of others" in done.stdout
    built = [e["data"] for e in first.events() if e["type"] == "data.built"]
    assert [row["documents"] for row in built] == [12]
    # The end-of-document token's spelling inside a text is text.
    assert len(documents(first.artifact, "train")) < 12
    assert all("<|endoftext|>" in text for text in documents(first.artifact, "test"))

    again = first.run()
    assert (again.returncode, "complete already" in again.stdout) == (0, True)

    second = Program("prepare_text", tmp_path / "b", first.spec, {})
    assert second.run().returncode == 0
    files = [json.loads((p.artifact / "manifest.json").read_text())["files"] for p in (first, second)]
    assert files[0] == files[1]

    # A damaged artifact is set aside and built anew.
    (first.artifact / "train.bin").write_bytes(b"torn")
    done = first.run()
    assert done.returncode == 0, done.stderr
    assert "artifact.corrupt" in done.stdout
    assert json.loads((first.artifact / "manifest.json").read_text())["files"] == files[0]


def test_nothing_matches(tmp_path: Path) -> None:
    program = Program("prepare_text", tmp_path / "s", {**SPEC, "inputs": [str(tmp_path / "*.none")]}, {})
    done = program.run(**program.journal_env("one"))
    assert done.returncode == 76
    assert "nothing matches" in done.stderr
    assert "next: correct the stage's inputs" in done.stderr
    errors = [e["data"]["category"] for e in program.events() if e["type"] == "workload.error"]
    assert errors == ["data_error"]
    assert not program.artifact.exists()


def test_a_vocabulary_under_the_bytes_is_refused(tmp_path: Path) -> None:
    program = Program("prepare_text", tmp_path / "s", {**SPEC, "vocab_size": 100}, {})
    done = program.run()
    assert done.returncode == 76
    assert "vocab_size must be a whole number of at least 257" in done.stderr


@pytest.mark.slow
def test_stopped_while_building_leaves_nothing_and_can_go_on(tmp_path: Path, corpus: Path) -> None:
    stop = tmp_path / "stop"
    stop.touch()
    program = Program("prepare_text", tmp_path / "s", {**SPEC, "inputs": str(corpus)}, {})
    done = program.run(TRAINMASTER_STOP_FILE=str(stop))
    assert done.returncode == 75, done.stderr
    assert not program.artifact.exists()
    stop.unlink()
    assert program.run(TRAINMASTER_STOP_FILE=str(stop)).returncode == 0


def test_a_stop_passes_through_the_tokenizers_training() -> None:
    """The trainer is native code: an exception of the iterator must come out as itself."""

    class Stop(Exception):
        pass

    def texts() -> Iterator[str]:
        yield "some text " * 10
        raise Stop

    with pytest.raises(Stop):
        train(texts(), 300)
