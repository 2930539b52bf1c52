"""What checks of a node found, as plain data: one :class:`Check` each, all together a :class:`NodeHealth`.

Judges nothing and touches no hardware: the checks are in :mod:`launch.preflight`. Only CRITICAL fails a
node; what a check could not find out is UNKNOWN and fails nothing. ``tests/resiliency/test_health.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

#: Longest text and list that are taken in from another process.
_TEXT: Final = 2000
_LIST: Final = 256
#: A finding on this share of several nodes is not of one of them.
COMMON: Final = 0.75
#: Errors that a GPU counts of itself: no wish, script or fabric brings them to many nodes at once.
_OWN: Final = frozenset({"gpu_ecc"})


class Status(str, Enum):
    """UNKNOWN: it could not be found out; worse than OK to look at, but no reason to act."""

    OK = "OK"
    WARN = "WARN"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


_ORDER: Final = (Status.OK, Status.UNKNOWN, Status.WARN, Status.CRITICAL)


@dataclass(frozen=True)
class Check:
    """One check's answer. ``category``: the node fault of ``resiliency.taxonomy`` that it proves, if any."""

    name: str
    status: Status
    detail: str = ""
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0
    category: str = ""

    def as_data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "evidence": list(self.evidence),
            "seconds": round(self.seconds, 4),
            "category": self.category,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Check:
        data = _mapping(data)
        return cls(
            _text(data["name"]),
            Status(data["status"]),
            _text(data.get("detail", "")),
            tuple(_text(line) for line in _list(data.get("evidence", []))),
            _seconds(data.get("seconds", 0.0)),
            _text(data.get("category", "")),
        )


@dataclass(frozen=True)
class NodeHealth:
    """All checks of one node, in a fixed order."""

    node: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        return any(check.status is Status.CRITICAL for check in self.checks)

    @property
    def worst(self) -> Status:
        return max((check.status for check in self.checks), key=_ORDER.index, default=Status.OK)

    @property
    def category(self) -> str:
        """What the first failed check that proves something proves."""
        failed = (check for check in self.checks if check.status is Status.CRITICAL)
        return next((check.category for check in failed if check.category), "")

    def summary_line(self) -> str:
        """The worst findings in a line, for a person."""
        worst = self.worst
        if worst is Status.OK:
            return f"{len(self.checks)} checks passed" if self.checks else "not checked"
        found = [f"{c.name}: {c.detail or c.status.value}" for c in self.checks if c.status is worst]
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        return f"{worst.value} {'; '.join(found[:3])}{more}"

    def as_data(self) -> dict[str, Any]:
        return {"node": self.node, "checks": [check.as_data() for check in self.checks]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> NodeHealth:
        """From another process; ValueError, TypeError or KeyError if it makes no sense."""
        data = _mapping(data)
        checks = tuple(Check.from_data(one) for one in _list(data["checks"]))
        return cls(_text(data["node"]), checks)


def settle(healths: Sequence[NodeHealth]) -> list[NodeHealth]:
    """The same, but a finding that (nearly) all of several nodes have fails none of them: it is a warning.

    More GPUs asked for than nodes have, a site check with a syntax error (which ends with 2, too), a port
    that no node has a cable for: each looks like a fault of every node, and would leave none to work on.
    """
    failing = Counter(name for health in healths for name in {c.name for c in health.checks if _common(c)})
    shared = {name: n for name, n in failing.items() if n > 1 and n >= COMMON * len(healths)}

    def judged(check: Check) -> Check:
        if check.name not in shared or not _common(check):
            return check
        said = f"{check.detail} (on {shared[check.name]} of {len(healths)} nodes: no single node's fault)"
        return replace(check, status=Status.WARN, detail=said, category="")

    return [replace(health, checks=tuple(map(judged, health.checks))) for health in healths]


def _common(check: Check) -> bool:
    return check.status is Status.CRITICAL and check.category not in _OWN


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"an object is expected, not {type(value).__name__}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"a list is expected, not {type(value).__name__}")
    if len(value) > _LIST:
        raise ValueError(f"a list of {len(value)} is too long")
    return list(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {type(value).__name__}")
    # It ends on a terminal: what another process says must not move the cursor there.
    return "".join(c if c.isprintable() else " " for c in value[:_TEXT])


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number is expected, not {type(value).__name__}")
    if not 0 <= value < 1e9:  # also refuses what is not a number, and integers too large for a float
        raise ValueError("seconds out of range")
    return float(value)
