"""models.checkpoint: committed or not there at all, verified before use, pruned with care."""

from __future__ import annotations

import zlib
from pathlib import Path

from models.checkpoint import CheckpointStore, faults_of


def save(store: CheckpointStore, step: int, text: str = "weights") -> Path:
    directory = store.scratch(step, "mark")
    directory.mkdir(parents=True)
    (directory / "data").write_text(text * 10)
    return store.commit(directory, step, {"consumed_samples": step * 8})[0]


def found(store: CheckpointStore) -> tuple[int | None, list[str]]:
    damaged: list[str] = []
    good = store.newest_good(lambda path, reason: damaged.append(f"{path.name}: {reason}"))
    return (good.step if good else None), damaged


def test_newest_wins_with_its_meta(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "c")
    assert found(store) == (None, [])
    save(store, 20)
    assert save(store, 40).name == "iter_0000040"
    good = store.newest_good(lambda *_: None)
    assert good is not None
    assert (good.step, good.meta["consumed_samples"]) == (40, 320)


def test_a_save_cut_short_is_invisible_and_cleaned_up(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 20)
    half = store.scratch(40, "earlier")
    half.mkdir()
    (half / "data").write_text("half")
    assert found(store) == (20, [])
    mine = store.scratch(60, "mark")
    mine.mkdir()
    store.clean("mark")
    assert not half.exists()
    assert mine.exists()


def test_damaged_ones_are_set_aside_and_passed_over(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for step in (20, 40, 60, 80):
        save(store, step)
    flipped = store.path(80) / "data"
    flipped.write_bytes(b"X" + flipped.read_bytes()[1:])
    (store.path(60) / "data").write_text("short")
    (store.path(40) / "manifest.json").unlink()
    step, damaged = found(store)
    assert step == 20
    assert [line.split(":")[0] for line in damaged] == [f"iter_{n:07d}.corrupt" for n in (80, 60, 40)]
    assert "checksum" in damaged[0]
    assert store.steps() == [20]


def test_two_damaged_copies_of_one_step_are_both_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for _ in range(2):
        save(store, 20)
        (store.path(20) / "data").write_text("short")
        assert found(store)[0] is None
    assert len(list(tmp_path.glob("iter_0000020.corrupt*"))) == 2


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    for step in (10, 20, 30, 40, 50):
        save(store, step)
    assert store.prune() == [20, 10]
    assert store.steps() == [50, 40, 30]


def test_never_fewer_than_two_good_ones(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    for step in (10, 20, 30, 40):
        save(store, step)
    (store.path(40) / "data").unlink()
    store.prune()
    assert store.steps() == [40, 30, 20]


def test_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 20, "old")
    save(store, 20, "new")
    assert (store.path(20) / "data").read_text() == "new" * 10
    assert store.steps() == [20]


def test_two_whose_content_is_good_stay_even_if_later_ones_look_intact(tmp_path: Path) -> None:
    earlier = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30, 40):
        save(earlier, step)
    for step in (30, 40):  # same size, other content: only reading it tells
        data = earlier.path(step) / "data"
        data.write_bytes(b"X" + data.read_bytes()[1:])
    store = CheckpointStore(tmp_path, keep=2)  # another process: it wrote none of them
    save(store, 50)
    store.prune()
    assert store.steps() == [50, 40, 30, 20]
    aside: list[str] = []
    save(store, 60)
    store.prune(lambda path, reason: aside.append(f"{path.name}: {reason}"))
    assert store.steps() == [60, 50]
    assert aside == []  # two good ones were there before it came to those
    again = CheckpointStore(tmp_path, keep=2)
    (again.path(60) / "data").write_text("short")
    again.prune(lambda path, reason: aside.append(f"{path.name}: {reason}"))
    assert [line.split(":")[0] for line in aside] == ["iter_0000060.corrupt"]
    assert again.steps() == [50]


def test_ranks_share_the_reading_and_find_what_one_would(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    directory = store.scratch(20, "mark")
    directory.mkdir(parents=True)
    for rank in range(5):
        (directory / f"__{rank}_0.distcp").write_bytes(bytes([rank]) * (100 + rank))
    path = store.commit(directory, 20, {})[0]
    (path / "__3_0.distcp").write_bytes(b"3" * 103)
    shares = [faults_of(path, share, 2) for share in range(2)]
    assert sorted(fault for share in shares for fault in share) == faults_of(path)
    assert len(faults_of(path)) == 1
    (path / "manifest.json").write_text("{")
    assert all(faults_of(path, share, 2) for share in range(2))


def test_a_quick_checksum_is_enough_to_find_a_flipped_bit(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    directory = store.scratch(20, "mark")
    directory.mkdir(parents=True)
    (directory / "data").write_text("weights")
    known = {"data": {"bytes": 7, "sha256": "of its writer", "crc32": f"{zlib.crc32(b'weights'):08x}"}}
    path = store.commit(directory, 20, {}, known)[0]
    assert faults_of(path) == []
    (path / "data").write_text("weighty"[:6] + "r")
    assert faults_of(path) == ["data: content does not match its checksum"]
