"""models.checkpoint: committed or not there at all, verified before use, pruned with care."""

from __future__ import annotations

from pathlib import Path

from models.checkpoint import CheckpointStore


def save(store: CheckpointStore, step: int, text: str = "weights") -> Path:
    directory = store.begin(step)
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
    half = store.begin(40)
    (half / "data").write_text("half")
    assert found(store) == (20, [])
    save(store, 60)
    assert not half.exists()


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
