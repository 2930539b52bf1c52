"""Artifacts that later stages may trust: a directory with a manifest written last.

A directory without a manifest, or whose files differ from it, is not an artifact. The manifest is
written by one process, renamed into place, and never changed. ``tests/resiliency/test_artifact.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .durable import fsync_dir, read_json, write_atomic
from .errors import StorageError

MANIFEST: Final = "manifest.json"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Manifest:
    """``kind``: what it is (dataset, checkpoint, evaluation …); ``meta``: its kind's own facts;
    ``files``: relative path → ``{"bytes": int, "sha256": hex}``, and ``"crc32"`` where it was computed too:
    it finds damage just as well and is read more than twice as fast."""

    kind: str
    meta: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's content, read in 1 MiB blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def crc32_file(path: Path) -> str:
    """CRC-32 (zlib) of a file's content, 8 hex digits."""
    value = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


def seal(
    directory: Path,
    kind: str,
    meta: Mapping[str, Any] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> Manifest:
    """Write the manifest over every file below ``directory``, after making those files durable.

    ``known``: facts of files that whoever wrote them has summed and made durable already.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            fsync_dir(path)
        elif path.is_file() and path != directory / MANIFEST:
            name = path.relative_to(directory).as_posix()
            if known is not None and name in known:
                files[name] = dict(known[name])
                continue
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    manifest = Manifest(kind, dict(meta or {}), files)
    text = json.dumps(
        {"v": SCHEMA_VERSION, "kind": kind, "meta": manifest.meta, "files": files},
        indent=1,
        sort_keys=True,
    )
    write_atomic(directory / MANIFEST, text + "\n")
    return manifest


def load(directory: Path) -> Manifest:
    """Read a manifest. Raises StorageError when it is missing, torn or of a newer schema."""
    path = directory / MANIFEST
    raw = read_json(path)
    try:
        version = int(raw["v"])
        # Before anything else of it: a newer version may have laid out the rest differently.
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"{path} was written by a newer version (schema {version})",
                hint="upgrade Trainmaster on this machine",
            )
        files = {str(name): dict(facts) for name, facts in dict(raw["files"]).items()}
        return Manifest(str(raw["kind"]), dict(raw["meta"]), files)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StorageError(f"{path} is not a manifest: {error!r}") from error


def faults(directory: Path, *, kind: str | None = None, deep: bool = True) -> list[str]:
    """Why the directory is not a good artifact; empty: it verifies. ``deep`` also compares checksums."""
    try:
        manifest = load(directory)
    except StorageError as error:
        return [error.message]
    found: list[str] = []
    if kind is not None and manifest.kind != kind:
        found.append(f"is a {manifest.kind}, not a {kind}")
    for name, want in manifest.files.items():
        fault = file_fault(directory, name, want, deep)
        if fault is not None:
            found.append(fault)
    return found


def file_fault(directory: Path, name: str, want: Mapping[str, Any], deep: bool = True) -> str | None:
    """Why a file is not what the manifest says; None: it is."""
    path = directory / name
    try:
        size = path.stat().st_size
        if size != want.get("bytes"):
            return f"{name}: {size} bytes instead of {want.get('bytes')}"
        if not deep:
            return None
        quick = want.get("crc32")
        same = crc32_file(path) == quick if quick else sha256_file(path) == want.get("sha256")
        return None if same else f"{name}: content does not match its checksum"
    except OSError as error:
        return f"{name}: {error.strerror or error}"


def verifies(directory: Path, *, kind: str | None = None, deep: bool = True) -> bool:
    return not faults(directory, kind=kind, deep=deep)
