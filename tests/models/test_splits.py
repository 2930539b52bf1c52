"""models.data.splits and models.data.sources: which text is used, and where it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.sources import Skipped, find_files, read_documents
from models.data.splits import Document, assign, digest, read_fractions
from models.settings import ConfigFault, DataFault


def documents(count: int, size: int = 100) -> list[Document]:
    return [Document(digest(f"text {number}"), size) for number in range(count)]


def test_shares_of_bytes() -> None:
    placed = assign(documents(1000), {"train": 0.8, "valid": 0.1, "test": 0.1}, seed=1)
    counts = {name: list(placed.values()).count(name) for name in ("train", "valid", "test")}
    assert counts == {"train": 800, "valid": 100, "test": 100}


def test_the_order_of_the_input_does_not_matter_but_the_seed_does() -> None:
    some, fractions = documents(50), {"train": 0.8, "test": 0.2}
    assert assign(some, fractions, 1) == assign(some[::-1], fractions, 1)
    assert assign(some, fractions, 1) != assign(some, fractions, 2)


def test_a_copy_is_in_one_split_only() -> None:
    placed = assign(documents(10) * 3, {"train": 0.5, "test": 0.5}, 1)
    assert len(placed) == 10


def test_every_split_asked_for_gets_a_document() -> None:
    placed = assign(documents(3, size=10**6), {"train": 0.98, "valid": 0.01, "test": 0.01}, 1)
    assert sorted(placed.values()) == ["test", "train", "valid"]


def test_too_few_documents() -> None:
    with pytest.raises(DataFault, match="2 distinct documents"):
        assign(documents(2), {"train": 0.8, "valid": 0.1, "test": 0.1}, 1)


def test_max_bytes_caps_the_total() -> None:
    placed = assign(documents(100), {"train": 0.9, "test": 0.1}, 1, max_bytes=1500)
    assert len(placed) == 15


@pytest.mark.parametrize("given", [{"train": 2}, {"valid": 0.6, "test": 0.5}, {"dev": 0.1}, {"test": "a"}])
def test_bad_fractions(given: dict) -> None:
    with pytest.raises(ConfigFault, match="fractions"):
        read_fractions(given)


def test_finds_files_globs_and_directories_in_order(tmp_path: Path) -> None:
    for name in ("b/two.py", "a/one.py", "a/notes.bin", "c/test/three.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    found = find_files([str(tmp_path)], exclude=["*/test/*"])
    assert [path.name for path in found] == ["one.py", "two.py"]
    assert [p.name for p in find_files([str(tmp_path / "**" / "*.py")])] == ["one.py", "two.py", "three.py"]
    assert [p.name for p in find_files([str(tmp_path / "a" / "notes.bin")])] == ["notes.bin"]


def test_each_input_that_matches_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x")
    with pytest.raises(DataFault) as raised:
        find_files([str(tmp_path / "nowhere"), str(tmp_path / "x.py"), str(tmp_path / "*.md")])
    assert "nowhere" in str(raised.value)
    assert "*.md" in str(raised.value)
    assert "'" + str(tmp_path / "x.py") not in str(raised.value)


def test_undecodable_and_empty_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "b.txt").write_text("\n  \n")
    (tmp_path / "c.txt").write_text("good")
    skipped = Skipped()
    assert list(read_documents(sorted(tmp_path.iterdir()), skipped)) == ["good"]
    assert (skipped.undecodable, skipped.empty, skipped.total) == (1, 1, 2)
    assert any("a.txt" in example for example in skipped.examples)


def test_jsonl_lines_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n')
    assert list(read_documents([tmp_path / "a.jsonl"])) == ["one", "two"]
    (tmp_path / "b.jsonl").write_text('{"txt": "one"}\n')
    with pytest.raises(DataFault, match=r"b\.jsonl:1"):
        list(read_documents([tmp_path / "b.jsonl"]))
