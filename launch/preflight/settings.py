"""What is to be checked, and where. Reads the raw mapping of stage.json and never raises.

``tests/launch/preflight/test_settings.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DEFAULT_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Settings:
    """``recovery.preflight``. ``timeout``: seconds for all checks of a node together."""

    run: bool = True
    timeout: float = DEFAULT_TIMEOUT_S
    skip: frozenset[str] = frozenset()
    site: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any] | Any) -> Settings:
        """What makes no sense becomes the default: a typing error must not keep a node from work."""
        if not isinstance(data, Mapping):
            return cls()
        run = data.get("run", True)
        return cls(
            run if isinstance(run, bool) else True,
            _timeout(data.get("timeout")),
            frozenset(_texts(data.get("skip"))),
            tuple(_texts(data.get("site"))),
        )


@dataclass(frozen=True)
class CheckPlace:
    """The node that is checked, and the directories its work needs."""

    node: str
    run_dir: Path
    local_dir: Path
    gpus_per_node: int = 0
    stage_dir: Path | None = None


def _timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(value)
    except OverflowError:
        return DEFAULT_TIMEOUT_S
    return seconds if math.isfinite(seconds) and seconds > 0 else DEFAULT_TIMEOUT_S


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple, set, frozenset)):
        return []
    return [str(one) for one in value if isinstance(one, (str, Path)) and str(one)]
