"""Progress of a command that does not know us: read from its output or from a file it writes.

``progress`` of a stage: ``megatron-log``; ``{regex: …}`` with groups ``step`` and ``loss``; ``{file: …}``, a
file holding a number; ``{checkpoint: …}``, a directory of Megatron checkpoints, of which
``megatron-checkpoint`` is the stage's own. ``tests/launch/test_progress.py``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resiliency.errors import TrainmasterError

#: Megatron-LM's training_log: " iteration       20/     100 | … | lm loss: 1.23E+00 | …".
MEGATRON_LOG = r"\biteration\s+(?P<step>\d+)/\s*\d+\s*\|(?:.*?\blm loss:\s*(?P<loss>[^\s|]+))?"
#: Megatron-LM keeps the last complete checkpoint's iteration here, or the word "release".
MEGATRON_TRACKER = "latest_checkpointed_iteration.txt"
INTERVAL_S = 10.0
_LONGEST = 8192


@dataclass(frozen=True)
class Seen:
    """A word of progress. ``loss`` is text where JSON has no number for it (nan, inf)."""

    step: int
    loss: float | str | None = None


def _loss(text: str | None) -> float | str | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else repr(value)


def read_match(match: re.Match[str]) -> Seen | None:
    """Groups ``step`` and, if there is one, ``loss``; None when the step is not a number."""
    groups = match.groupdict()
    try:
        step = int(float(groups["step"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Seen(step, _loss(groups.get("loss")))


class Watcher:
    """Follows one stage's progress; :meth:`due` gives what is new, at most every ``interval_s``."""

    def __init__(
        self,
        spec: Any,
        *,
        resolve: Callable[[str], Path],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._file: Path | None = None
        self._section = "step"
        self._interval = interval_s
        if spec == "megatron-log":
            self._pattern = re.compile(MEGATRON_LOG)
        elif isinstance(spec, Mapping) and spec.get("regex"):
            try:
                self._pattern = re.compile(str(spec["regex"]))
            except re.error as error:
                raise TrainmasterError(
                    f"progress.regex is not a regular expression: {error}",
                    hint="correct it in the experiment and submit again",
                ) from error
        elif isinstance(spec, Mapping) and spec.get("file"):
            self._file = resolve(str(spec["file"]))
        elif spec == "megatron-checkpoint" or (isinstance(spec, Mapping) and spec.get("checkpoint")):
            directory = "{checkpoint_dir}" if isinstance(spec, str) else str(spec["checkpoint"])
            self._file = resolve(directory) / MEGATRON_TRACKER
            self._section = "checkpoint"
        elif spec is not None:
            raise TrainmasterError(
                f"progress is {spec!r}: not megatron-log, megatron-checkpoint, a regex, file or checkpoint",
                hint="correct it in the experiment and submit again",
            )
        self._seen: Seen | None = None
        self._said: Seen | None = None
        self._said_at = time.monotonic()
        self._said_step: int | None = None
        # What was saved before we came is no work of this attempt.
        self._saved = self._number() if self._section == "checkpoint" else None

    @property
    def active(self) -> bool:
        return self._pattern is not None or self._file is not None

    @property
    def step(self) -> int | None:
        """The last step seen."""
        return self._seen.step if self._seen else None

    def line(self, raw: bytes) -> None:
        """Look at one line of output."""
        if self._pattern is None:
            return
        match = self._pattern.search(raw[:_LONGEST].decode("utf-8", "replace"))
        if match is not None:
            self._seen = read_match(match) or self._seen

    def due(self, *, final: bool = False) -> dict[str, Any] | None:
        """Payload of a ``progress`` event if one is due."""
        now = time.monotonic()
        elapsed = now - self._said_at
        if elapsed < self._interval and not final:
            return None
        self._seen = self._number() or self._seen
        if self._seen is None or self._seen == self._said:
            return None
        done = self._seen.step - (self._said_step if self._said_step is not None else self._seen.step)
        rate = round(done / elapsed, 4) if elapsed > 0 and done > 0 else None
        self._said, self._said_at, self._said_step = self._seen, now, self._seen.step
        return {
            "step": self._seen.step,
            "loss": self._seen.loss,
            "tokens": None,
            "section": self._section,
            "steps_per_s": rate,
        }

    def saved(self) -> dict[str, Any] | None:
        """Payload of a ``checkpoint.committed`` event when there is a new checkpoint since the last call."""
        if self._section != "checkpoint" or self._file is None:
            return None
        seen = self._number()
        if seen is None or seen == self._saved:
            return None
        self._saved = seen
        path = str(self._file.parent)
        return {"step": seen.step, "path": path, "bytes": None, "seconds": None, "source": self._file.name}

    def _number(self) -> Seen | None:
        """The first number in the file."""
        if self._file is None:
            return None
        try:
            with self._file.open("rb") as stream:
                text = stream.read(256).decode("utf-8", "replace")
        except OSError:
            return None  # not written yet
        match = re.search(r"(?P<step>\d+)", text)
        return read_match(match) if match is not None else None
