"""Artifacts: what verifies, and every way in which one does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resiliency import artifact
from resiliency.errors import StorageError


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    where = tmp_path / "artifact"
    (where / "deep" / "er").mkdir(parents=True)
    (where / "data.bin").write_bytes(bytes(range(256)) * 40)
    (where / "deep" / "er" / "index.json").write_text("{}")
    (where / "deep" / "manifest.json").write_text("another program's")
    (where / "empty").write_bytes(b"")
    artifact.seal(where, "dataset", {"tokens": 7})
    return where


def test_a_sealed_directory_verifies_and_keeps_its_facts(sealed: Path) -> None:
    assert artifact.faults(sealed, kind="dataset") == []
    assert artifact.verifies(sealed, deep=False)
    manifest = artifact.load(sealed)
    assert (manifest.kind, manifest.meta) == ("dataset", {"tokens": 7})
    assert set(manifest.files) == {
        "data.bin", "deep/er/index.json", "deep/manifest.json", "empty",
    }  # fmt: skip


def test_without_a_manifest_it_is_no_artifact(sealed: Path) -> None:
    (sealed / artifact.MANIFEST).unlink()
    assert "manifest.json" in artifact.faults(sealed)[0]
    assert not artifact.verifies(sealed / "nowhere")


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_a_torn_manifest(sealed: Path, cut: int) -> None:
    path = sealed / artifact.MANIFEST
    path.write_bytes(path.read_bytes()[:cut])
    assert not artifact.verifies(sealed)
    with pytest.raises(StorageError):
        artifact.load(sealed)


@pytest.mark.parametrize(
    "raw",
    ["[]", "null", "7", '{"v": 1}', '{"v": "x", "kind": "a", "meta": {}, "files": {}}',
     '{"v": 1, "kind": "a", "meta": [7], "files": {}}',
     '{"v": 1, "kind": "a", "meta": {}, "files": {"a": 7}}'],
)  # fmt: skip
def test_a_manifest_that_is_something_else(sealed: Path, raw: str) -> None:
    (sealed / artifact.MANIFEST).write_text(raw)
    assert "not a manifest" in artifact.faults(sealed)[0]


def test_a_newer_manifest_is_not_guessed_at(sealed: Path) -> None:
    (sealed / artifact.MANIFEST).write_text(json.dumps({"v": 2, "all": "different"}))
    with pytest.raises(StorageError, match="newer version") as caught:
        artifact.load(sealed)
    assert "upgrade" in caught.value.hint


def test_a_file_cut_short_is_seen_without_reading_it(sealed: Path) -> None:
    (sealed / "data.bin").write_bytes(b"x" * 10)
    assert artifact.faults(sealed, deep=False) == ["data.bin: 10 bytes instead of 10240"]


def test_a_missing_file(sealed: Path) -> None:
    (sealed / "deep" / "er" / "index.json").unlink()
    assert artifact.faults(sealed)[0].startswith("deep/er/index.json: No such file")


def test_a_nested_manifest_is_content_like_any_other(sealed: Path) -> None:
    (sealed / "deep" / "manifest.json").write_text("another progr4m's")
    assert artifact.faults(sealed) == ["deep/manifest.json: content does not match its checksum"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10239), st.integers(0, 7))
def test_any_flipped_bit_is_found(sealed: Path, at: int, bit: int) -> None:
    path = sealed / "data.bin"
    good = path.read_bytes()
    raw = bytearray(good)
    raw[at] ^= 1 << bit
    path.write_bytes(raw)
    assert artifact.faults(sealed) == ["data.bin: content does not match its checksum"]
    assert artifact.faults(sealed, deep=False) == []  # same size: only the deep look can tell
    path.write_bytes(good)


def test_the_wrong_kind(sealed: Path) -> None:
    assert artifact.faults(sealed, kind="model") == ["is a dataset, not a model"]


def test_extra_files_do_no_harm(sealed: Path) -> None:
    """Readers of an artifact leave index caches beside it; what was sealed is still what it was."""
    (sealed / "cache").mkdir()
    (sealed / "cache" / "index.npy").write_bytes(b"later")
    assert artifact.verifies(sealed)


def test_sealing_again_takes_what_is_there_now(sealed: Path) -> None:
    (sealed / "data.bin").write_bytes(b"new")
    artifact.seal(sealed, "dataset")
    assert artifact.verifies(sealed)
    assert artifact.MANIFEST not in artifact.load(sealed).files
