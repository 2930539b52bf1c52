"""Signatures: what a line means, as data.

A signature is one YAML mapping: ``id``, ``category``, ``role`` (root, cascade, ambiguous, context),
``action``, ``anchor`` (strings of which a matching line contains one; the fast search looks for these),
``pattern`` (regular expression on the line without its prefix), ``provenance``, ``date``, ``positive`` and
``negative`` samples (lines that mean nothing, which no signature may match). Optional: ``unlike`` (lines
of another signature that this one may not match), ``where`` (``line``, ``exception``: only the last line
of a traceback),
``kind`` (``log``, ``kernel``, ``any``), ``frames`` (regular expression on the traceback's file names and
functions), ``generic`` (gives way to any other match), ``lag_s``, ``proof`` (the line proves its node at
fault).

A site adds files of the same form (``TRAINMASTER_SIGNATURES``: a list of files or directories, like
PATH); an id of its own replaces ours. ``lint`` is what ``triage signatures lint`` and the tests run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import TrainmasterError
from .model import AMBIGUOUS, CASCADE, CONTEXT, ROOT

DIRECTORY = Path(__file__).resolve().parent.parent / "signatures"
ENVIRONMENT = "TRAINMASTER_SIGNATURES"
ROLES = (ROOT, AMBIGUOUS, CASCADE, CONTEXT)
KINDS = ("log", "kernel", "any")
_FIELDS = frozenset(
    [
        "id",
        "category",
        "role",
        "action",
        "anchor",
        "pattern",
        "where",
        "kind",
        "frames",
        "generic",
        "lag_s",
        "proof",
        "provenance",
        "date",
        "positive",
        "negative",
        "unlike",
        "marker",
        "ignorecase",
        "note",
    ]
)


class BadSignature(TrainmasterError):
    """A signature file cannot be used as it is."""

    exit_code = 3


@dataclass(frozen=True)
class Signature:
    id: str
    category: str
    role: str
    pattern: re.Pattern[str]
    anchors: tuple[str, ...]
    action: str = ""
    where: str = "line"
    kind: str = "log"
    frames: re.Pattern[str] | None = None
    generic: bool = False
    lag_s: float = 0.0
    proof: bool = False
    marker: str = ""
    provenance: str = ""
    date: str = ""
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    origin: str = ""
    note: str = ""
    digits: bool = False  # whether which digits a line has decides about a match
    data: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    def search(self, text: str) -> re.Match[str] | None:
        return self.pattern.search(text)


def _yaml(path: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with path.open(encoding="utf-8") as handle:
            return yaml.load(handle, Loader=loader)  # noqa: S506 - a safe loader, in C where there is one
    except (OSError, yaml.YAMLError) as error:
        raise BadSignature(
            f"cannot read signatures from {path}: {error}", hint="fix or remove the file"
        ) from error


def parse(row: Any, origin: str) -> Signature:
    """One mapping as a signature; raises :class:`BadSignature` naming file and id."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise BadSignature(f"{origin}: a signature is a mapping with an id", hint="see docs/triage.md")
    name = f"{origin}: {row['id']}"
    unknown = sorted(set(row) - _FIELDS)
    if unknown:
        raise BadSignature(f"{name}: unknown field {unknown[0]!r}", hint="see docs/triage.md")
    for key in ("category", "role", "pattern", "anchor"):
        if not row.get(key):
            raise BadSignature(f"{name}: {key} is missing", hint="see docs/triage.md")
    if row["role"] not in ROLES or row.get("kind", "log") not in KINDS:
        raise BadSignature(f"{name}: role or kind is not one of {ROLES}, {KINDS}")
    flags = re.I if row.get("ignorecase") else 0
    try:
        pattern = re.compile(row["pattern"], flags)
        frames = re.compile(row["frames"]) if row.get("frames") else None
    except re.error as error:
        raise BadSignature(f"{name}: pattern: {error}") from error
    anchor = row["anchor"]
    return Signature(
        row["id"],
        row["category"],
        row["role"],
        pattern,
        tuple([anchor] if isinstance(anchor, str) else anchor),
        action=row.get("action") or "",
        where=row.get("where", "line"),
        kind=row.get("kind", "log"),
        frames=frames,
        generic=bool(row.get("generic")),
        lag_s=float(row.get("lag_s", 0)),
        proof=bool(row.get("proof")),
        marker=row.get("marker") or "",
        provenance=row.get("provenance") or "",
        date=str(row.get("date") or ""),
        positive=tuple(row.get("positive") or ()),
        negative=tuple(row.get("negative") or ()),
        unlike=tuple(row.get("unlike") or ()),
        origin=origin,
        note=row.get("note") or "",
        digits=_minds_digits(row["pattern"]),
        data=row,
    )


_WITHOUT_DIGITS = re.compile(r"\(\?P<\w+>|\{\d*,?\d*\}|\\[dDwWsSbB0-9]")


def _minds_digits(pattern: str) -> bool:
    return bool(re.search(r"\d", _WITHOUT_DIGITS.sub("", pattern)))


def site_files(value: str | None = None) -> list[Path]:
    """The site's own signature files, from ``TRAINMASTER_SIGNATURES``."""
    text = os.environ.get(ENVIRONMENT, "") if value is None else value
    found: list[Path] = []
    for part in filter(None, text.split(os.pathsep)):
        path = Path(part)
        found += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return found


def read(paths: Iterable[Path]) -> list[Signature]:
    """All signatures of these files; a later one replaces an earlier one of the same id."""
    by_id: dict[str, Signature] = {}
    for path in paths:
        rows = _yaml(path)
        if rows is None:
            continue
        if not isinstance(rows, list):
            raise BadSignature(f"{path}: expected a list of signatures")
        for row in rows:
            signature = parse(row, path.name)
            if signature.id in by_id and by_id[signature.id].origin == path.name:
                raise BadSignature(f"{path.name}: {signature.id}: two signatures of this id")
            by_id[signature.id] = signature
    return list(by_id.values())


def own_files() -> list[Path]:
    return sorted(p for p in DIRECTORY.glob("*.yaml") if not p.name.startswith("catalogue-"))


@lru_cache(maxsize=4)
def _load(extra: tuple[str, ...]) -> SignatureSet:
    return SignatureSet(read([*own_files(), *map(Path, extra)]))


def load(extra: Sequence[Path] | None = None) -> SignatureSet:
    """Ours and the site's; read once per process."""
    chosen = site_files() if extra is None else extra
    return _load(tuple(str(p) for p in chosen))


class SignatureSet:
    """Signatures with what the scanner needs to find them fast."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = tuple(signatures)
        self.by_id = {s.id: s for s in signatures}
        self.lines = tuple(s for s in signatures if s.where == "line")
        self.exceptions = tuple(
            s for s in signatures if s.where == "exception" or (s.kind != "kernel" and s.role != CONTEXT)
        )
        self.anchors = tuple(sorted({a.encode() for s in self.lines for a in s.anchors}))

        self._by_anchor: list[list[Signature]] = [
            [s for s in self.lines if a.decode() in s.anchors] for a in self.anchors
        ]

    def candidates(self, text: str, kind: str, ids: Collection[int] = (-1,)) -> list[Signature]:
        """Signatures with an anchor in ``text``; ``ids``: of which anchors (-1: not known)."""
        if -1 in ids:
            pool: Iterable[Signature] = (s for s in self.lines if any(a in text for a in s.anchors))
        else:
            known = [i for i in ids if i < len(self.anchors)]
            pool = dict.fromkeys(s for i in known for s in self._by_anchor[i])
        return [s for s in pool if s.kind == "any" or s.kind == kind]

    def of_line(self, text: str, kind: str) -> list[tuple[Signature, re.Match[str]]]:
        """All line signatures that match ``text``; ``kind`` is what the file is."""
        return [(s, m) for s in self.candidates(text, kind) if (m := s.search(text))]

    def of_exception(self, text: str, frames: str) -> list[tuple[Signature, re.Match[str]]]:
        """All signatures that match the last line(s) of a traceback."""
        found = []
        for signature in self.exceptions:
            if any(a in text for a in signature.anchors):
                match = signature.pattern.search(text)
                if match and (signature.frames is None or signature.frames.search(frames)):
                    found.append((signature, match))
        return found


def _telling(found: tuple[Signature, re.Match[str]]) -> tuple[bool, bool, bool, int]:
    signature, match = found
    specific = not signature.generic
    return (specific, signature.frames is not None, signature.where == "line", match.end() - match.start())


def best(found: Sequence[tuple[Signature, re.Match[str]]]) -> tuple[Signature, re.Match[str]] | None:
    """Of several signatures on one line: specific before generic, then the longest match."""
    if not found:
        return None
    return max(found, key=_telling)
