"""``KIND[@step|@point][:rank|node][+seconds]``: a fault as it is typed. Pure."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from resiliency.errors import UsageError
from resiliency.faultkinds import KINDS, OUTSIDE, Kind

FORM = "KIND[@step][:rank|node][+seconds]"
_TEXT = re.compile(
    r"(?P<kind>[A-Za-z_-]+)"
    r"(?:@(?P<when>[^:+@]*))?"
    r"(?::(?P<where>[^:+@]*))?"
    r"(?:\+(?P<seconds>[^:+@]*))?"
)
_POINT = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Asked:
    """One fault as asked for. None: left to the plan. ``node`` only for kinds that are about a node,
    ``rank`` then means the node that this rank is on."""

    text: str
    kind: Kind
    step: int | None = None
    point: str = ""
    rank: int | None = None
    node: str | None = None
    seconds: float | None = None


def listing() -> str:
    """Every kind with what it is, a line each."""
    width = max(map(len, KINDS))
    return "\n".join(f"  {kind.name:<{width}}  {kind.about}" for kind in KINDS.values())


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(
        f"--fault {text}: {why}; it is {FORM}, and the kinds are:\n{listing()}",
        hint="for example: --fault sigkill@30:1",
    )


def parse(text: str) -> Asked:
    """Raises UsageError that lists the kinds."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "it cannot be read")
    kind = KINDS.get(match["kind"].lower().replace("_", "-"))
    if kind is None:
        near = difflib.get_close_matches(match["kind"].lower(), KINDS, n=1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise _wrong(text, f"there is no kind {match['kind']!r}{guess}")
    step, point = _when(text, kind, match["when"])
    rank, node = _where(text, kind, match["where"])
    return Asked(text.strip(), kind, step, point, rank, node, _seconds(text, kind, match["seconds"]))


def _when(text: str, kind: Kind, word: str | None) -> tuple[int | None, str]:
    if word is None:
        return None, ""
    if word.isascii() and word.isdecimal():
        if int(word) < 1:
            raise _wrong(text, "steps are counted from 1")
        return int(word), ""
    if _POINT.fullmatch(word) and kind.by != OUTSIDE:
        return None, word
    wanted = "a step" if kind.by == OUTSIDE else "a step, or a point such as checkpoint.write"
    raise _wrong(text, f"{word!r} is not {wanted}")


def _where(text: str, kind: Kind, word: str | None) -> tuple[int | None, str | None]:
    if word is None:
        return None, None
    if word.isascii() and word.isdecimal():
        return int(word), None
    if not _NODE.fullmatch(word):
        raise _wrong(text, f"{word!r} is neither a rank nor a node")
    return None, word


def _seconds(text: str, kind: Kind, word: str | None) -> float | None:
    if word is None:
        return None
    try:
        seconds = float(word)
    except ValueError:
        raise _wrong(text, f"{word!r} is not a number of seconds") from None
    if not kind.seconds:
        raise _wrong(text, f"{kind.name} has no length")
    if not 0 < seconds <= 3600:
        raise _wrong(text, "seconds are over 0 and at most 3600")
    return seconds
