"""Which document goes to train, valid or test: pure, decided by content alone.

A document's place follows from its digest and the seed, so it does not move when others are added
in between, and a copy of a document cannot be in two splits: only its first occurrence is used.
May not import torch or read files. ``tests/models/test_splits.py`` holds it to that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.settings import ConfigFault, DataFault

SPLITS = ("train", "valid", "test")
DEFAULT_FRACTIONS: dict[str, float] = {"train": 0.96, "valid": 0.02, "test": 0.02}


@dataclass(frozen=True)
class Document:
    """A document's identity: digest of its text, and its size in UTF-8 bytes."""

    digest: bytes
    size: int


def digest(text: str) -> bytes:
    """Identity of a text: sha256 of its UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).digest()


def read_fractions(given: Mapping[str, float] | None) -> dict[str, float]:
    """Fractions by split, checked; what is absent is 0, ``train`` takes the rest."""
    if given is None:
        return dict(DEFAULT_FRACTIONS)
    unknown = sorted(set(given) - set(SPLITS))
    wrong = [k for k, v in given.items() if not isinstance(v, (int, float)) or not 0 <= v <= 1]
    held = sum(float(given.get(name, 0.0)) for name in ("valid", "test")) if not wrong else 0.0
    if unknown or wrong or held >= 1:
        raise ConfigFault(
            f"split {dict(given)} must give fractions from 0 to 1 for {', '.join(SPLITS)}, "
            "valid and test together under 1",
            hint="for example split: {valid: 0.02, test: 0.02}",
        )
    fractions = {name: float(given.get(name, 0.0)) for name in ("valid", "test")}
    return {"train": 1.0 - held, **fractions}


def assign(
    documents: Sequence[Document],
    fractions: Mapping[str, float],
    seed: int,
    max_bytes: int | None = None,
) -> dict[bytes, str]:
    """Digest → split, by shares of bytes; a document over ``max_bytes`` in total is in none.

    Raises ``DataFault`` when there are fewer distinct documents than splits asked for.
    """
    distinct = {document.digest: document for document in documents}
    key = seed.to_bytes(8, "little", signed=True)
    order = sorted(distinct.values(), key=lambda d: hashlib.sha256(key + d.digest).digest())
    wanted = [name for name in SPLITS if fractions.get(name, 0) > 0]
    if len(order) < len(wanted):
        raise DataFault(
            f"{len(order)} distinct documents cannot be split into {', '.join(wanted)}",
            hint="give more files (one file is one document) or ask for fewer splits",
        )
    if max_bytes is not None:
        order = _within(order, max_bytes, len(wanted))
    total = sum(document.size for document in order)
    placed: dict[bytes, str] = {}
    rest = list(order)
    for name in ("test", "valid"):
        share, taken = fractions.get(name, 0.0) * total, 0
        # Leave at least one document for each split still to fill.
        while share > 0 and taken < share and len(rest) > 1 + (name == "test" and "valid" in wanted):
            document = rest.pop(0)
            placed[document.digest] = name
            taken += document.size
    placed.update({document.digest: "train" for document in rest})
    return placed


def _within(order: Sequence[Document], max_bytes: int, least: int) -> list[Document]:
    kept: list[Document] = []
    total = 0
    for document in order:
        if len(kept) >= least and total + document.size > max_bytes:
            continue
        kept.append(document)
        total += document.size
    return kept
