"""A delimited table with a header, any columns in any order, as ``sacct -P`` prints it. Pure.

A row that does not fit is counted with its reason, never guessed at; but a job's name may hold the
delimiter, and is put together again where that makes the row whole.
``tests/orchestrator/importing/test_table.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from resiliency import jobstate
from resiliency.errors import TrainmasterError

_DELIMITERS: Final = ("|", "\x1f", "\t", ";", ",")
_IDS: Final = ("jobidraw", "jobid")
_SHOWN: Final = 20  # bad rows named one by one


@dataclass
class Faults:
    """What could not be read. ``counts``: reason → rows; ``lines``: the first ones, for a person."""

    counts: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def add(self, reason: str, line: int, text: str = "") -> None:
        self.counts[reason] += 1
        if len(self.lines) < _SHOWN:
            self.lines.append(f"line {line}: {reason}{': ' if text else ''}{text.strip()[:120]}")


def _header(line: str) -> tuple[str, list[str]] | None:
    """Delimiter and column names (lower case), if the line is a header."""
    for delimiter in _DELIMITERS:
        names = [name.strip().lower() for name in line.rstrip("\r\n").split(delimiter)]
        if "state" in names and any(name in names for name in _IDS):
            return delimiter, names
    return None


class Table:
    """Rows of the text as mappings from column to text; ``columns`` is known once a row was asked for."""

    def __init__(self, lines: Iterable[str], source: str) -> None:
        self._lines = lines
        self.source = source
        self.columns: frozenset[str] = frozenset()
        self.faults = Faults()
        self.rows_read = 0

    def rows(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """``(line number, row)``. Raises TrainmasterError when no header comes before the first row."""
        delimiter, names = "", [""]
        for number, line in enumerate(self._lines, 1):
            text = line.rstrip("\r\n")
            if not text.strip("\x00 \t"):
                continue
            if not delimiter or "tate" in text:  # a header may come again where dumps were joined
                found = _header(text)
                if found is not None:
                    delimiter, names = found
                    self.columns |= frozenset(names) - {""}
                    continue
            if not delimiter:
                if number > 50:
                    break
                self.faults.add("text before the header", number, text)
                continue
            self.rows_read += 1
            cells = text.split(delimiter)
            if len(cells) == len(names) + 1 and not cells[-1]:
                del cells[-1]  # -p ends rows with the delimiter, its header perhaps not
            if len(cells) > len(names):
                cells = _joined(cells, names, delimiter) or cells
            if len(cells) != len(names):
                reason = "row is cut short" if len(cells) < len(names) else "row has too many columns"
                self.faults.add(reason, number, text)
                continue
            yield number, dict(zip(names, cells, strict=True))
        if not delimiter:
            raise TrainmasterError(
                f"{self.source}: no header with JobID and State in it",
                hint="sacct -a -D -P -S now-90days -o JobIDRaw,JobID,JobName,User,Cluster,State,ExitCode,"
                "Submit,Start,End,NodeList,WorkDir,AllocTRES > jobs.txt",
            )


def _joined(cells: Sequence[str], names: Sequence[str], delimiter: str) -> list[str] | None:
    """The row with its superfluous cells put together as the job's name; None if it then makes no sense."""
    if "jobname" not in names:
        return None
    at, more = names.index("jobname"), len(cells) - len(names)
    joined = [*cells[:at], delimiter.join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    return joined if jobstate.normalise(joined[names.index("state")]) != jobstate.UNKNOWN else None
