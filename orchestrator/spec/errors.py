"""What is wrong with a file the user wrote: one ``Fault`` per mistake, all raised together.

Plain text only, no rich: the command line decides how it looks. ``tests/orchestrator/test_spec_faults.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from resiliency.errors import SpecError

from .credentials import redact


@dataclass(frozen=True, order=True)
class Fault:
    """One mistake. ``line`` is 1-based, 0 where there is none to name; ``key`` is the dotted path.

    ``override`` is the text of the command-line override that brought the mistake in (then ``file``
    and ``line`` do not count). ``suggestion`` is the nearest valid word, or empty.
    """

    file: str
    line: int
    key: str
    message: str
    expected: str = ""
    suggestion: str = ""
    override: str = ""

    @property
    def where(self) -> str:
        if self.override:
            return f"override {self.override}"
        return f"{self.file}:{self.line}" if self.line else self.file


def nearest(word: object, known: Iterable[str]) -> str:
    """The most similar known word, or empty when none is similar."""
    found = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return found[0] if found else ""


def render(faults: Iterable[object]) -> list[str]:
    """One line a fault: where, key, what is wrong, what was expected, the nearest valid word."""
    lines = []
    for fault in faults:
        if not isinstance(fault, Fault):
            lines.append(str(fault))
            continue
        text = f"{fault.where}: {fault.key + ': ' if fault.key else ''}{fault.message}"
        if fault.expected:
            text += f"; expected {fault.expected}"
        if fault.suggestion:
            text += f"; did you mean {fault.suggestion!r}?"
        # A hostile key must not break the one-line form or drive the terminal.
        lines.append("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))
    return lines


def _without_credentials(fault: Fault) -> Fault:
    return replace(
        fault,
        key=redact(fault.key),
        message=redact(fault.message),
        suggestion=redact(fault.suggestion),
        override=redact(fault.override),
    )


def refuse(what: str, faults: Sequence[Fault], *, hint: str = "") -> SpecError:
    """The error that carries ``faults``, in file order and without repetitions."""
    clean = {_without_credentials(fault) for fault in faults}
    unique = tuple(sorted(clean, key=lambda f: (bool(f.override), f.file, f.line, f.key)))
    count = "1 fault" if len(unique) == 1 else f"{len(unique)} faults"
    return SpecError(
        f"{what} has {count}",
        hint=hint or "correct what is listed, then run: python -m orchestrator validate FILE",
        faults=unique,
    )
