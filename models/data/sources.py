"""Finds the documents of a text stage, in an order that depends on nothing but their paths.

One file is one document; in a ``.jsonl`` file each line's ``text`` is one. A file that is not UTF-8
is counted and left out, never guessed at. May not import torch.
``tests/models/test_prepare_text.py`` holds it to that.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.settings import DataFault

TEXT_PATTERNS = ("*.py", "*.txt", "*.md", "*.rst", "*.jsonl")
# Installed packages are not the library; its tests are larger than the library itself.
DEFAULT_EXCLUDE = ("*/site-packages/*", "*/dist-packages/*", "*/test/*", "*/tests/*")


@dataclass
class Skipped:
    """What was found but not used; the first few names serve as examples."""

    undecodable: int = 0
    empty: int = 0
    unreadable: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, name: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 5:
            self.examples.append(f"{name} ({kind})")

    @property
    def total(self) -> int:
        return self.undecodable + self.empty + self.unreadable


def standard_library() -> Path:
    """Python's own sources: real text on every machine."""
    return Path(sysconfig.get_paths()["stdlib"])


def find_files(
    inputs: Sequence[str], include: Sequence[str] = TEXT_PATTERNS, exclude: Sequence[str] = ()
) -> list[Path]:
    """Files of ``inputs`` (files, directories searched through, or globs with ``**``), sorted.

    ``include`` applies to names in directories only, ``exclude`` to the whole path of every file.
    Raises ``DataFault`` naming each input that matches nothing.
    """
    found: set[Path] = set()
    missing = []
    for text in inputs:
        expanded = os.path.expanduser(text)
        if os.path.isdir(expanded):
            files = [
                Path(root) / name
                for root, _, names in os.walk(expanded)
                for name in names
                if any(fnmatch.fnmatch(name, pattern) for pattern in include)
            ]
        else:
            files = [Path(name) for name in glob.glob(expanded, recursive=True) if os.path.isfile(name)]
        kept = [
            file
            for file in files
            if not any(fnmatch.fnmatch(file.as_posix(), pattern) for pattern in exclude)
        ]
        if not kept:
            why = "after the exclusions nothing is left of" if files else "nothing matches"
            missing.append(f"{why} {text!r}")
        found.update(kept)
    if missing:
        raise DataFault(
            f"no text to prepare: {'; '.join(missing)} (relative paths start at {os.getcwd()})",
            hint="correct the stage's inputs, include or exclude",
        )
    return sorted(found, key=lambda path: path.as_posix())


def read_documents(files: Sequence[Path], skipped: Skipped | None = None) -> Iterator[str]:
    """The text of every document. Notes in ``skipped`` what it leaves out."""
    skipped = Skipped() if skipped is None else skipped
    for file in files:
        try:
            raw = file.read_bytes()
        except OSError:
            skipped.note("unreadable", str(file))
            continue
        pieces = raw.splitlines() if file.suffix == ".jsonl" else [raw]
        for number, piece in enumerate(pieces, 1):
            name = f"{file}:{number}" if file.suffix == ".jsonl" else str(file)
            try:
                text = piece.decode("utf-8")
                if file.suffix == ".jsonl" and text.strip():
                    text = _json_text(text, name)
            except UnicodeDecodeError:
                skipped.note("undecodable", name)
                continue
            if text.strip():
                yield text
            else:
                skipped.note("empty", name)


def _json_text(line: str, name: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataFault(
            f"{name} is not a JSON object with a 'text' field",
            hint='each line of a .jsonl input must look like {"text": "…"}',
        ) from error
    if not isinstance(text, str):
        raise DataFault(f"{name}: 'text' is not a string", hint="correct that line")
    return text
