"""Time stamps as logs write them, to Unix seconds.

All wall times are read as if in one zone: logs rarely name theirs, and what differs between files is
estimated from events they share (``timeline``). Seconds since boot stay a clock of their own
(``boot=True``). ``tests/resiliency/triage/test_reading.py`` has a row per format.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from functools import lru_cache

_MONTHS = {
    m: i
    for i, m in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_MON = "(?:" + "|".join(_MONTHS) + ")"

_STAMP = re.compile(
    rf"""
    (?P<Y>20\d\d)[-/](?P<m>[01]\d)[-/](?P<d>[0-3]\d)[T
    _]+(?P<H>[0-2]\d):(?P<M>[0-5]\d):(?P<S>[0-6]\d)(?P<f>[.,]\d{{1,9}})? (?P<tz>Z|[+-]\d\d:?\d\d\b)?
  | (?:(?<=\s)|(?<=\[)|(?<=:)|^)[IWEFC](?P<gm>[01]?\d)(?P<gd>[0-3]\d)[
  ]+(?P<gH>[0-2]\d):(?P<gM>[0-5]\d):(?P<gS>[0-6]\d)
      (?P<gf>\.\d{{1,9}})? | (?P<lmon>{_MON})[
  ]+(?P<ld>[0-3]?\d)[ ]+
      (?P<lH>[0-2]\d):(?P<lM>[0-5]\d):(?P<lS>[0-6]\d)
      (?P<lf>\.\d{{1,9}})?(?:[
  ](?P<lY>20\d\d))?
  | (?:(?<=\s)|^)(?P<vm>[01]\d)-(?P<vd>[0-3]\d)[
  ](?P<vH>[0-2]\d):(?P<vM>[0-5]\d):(?P<vS>[0-6]\d)(?P<vf>[.,]\d{{1,6}})? | ^(?P<boot>\[[
  ]*\d{{1,9}}\.\d{{6}}\])
  | ^\[?(?P<tH>[0-2]\d):(?P<tM>[0-5]\d):(?P<tS>[0-6]\d)(?P<tf>[.,]\d{{1,6}})?(?=[\] ])
    """,
    re.X | re.M,
)


_LIKELY = re.compile(r"\d:\d\d:\d\d|\d\.\d{6}\]")  # every stamp has one of these; cheap to look for


@dataclass(frozen=True)
class Stamp:
    """A time as written. ``partial``: the year (or the day) was missing and has been supplied."""

    seconds: float
    boot: bool = False
    partial: bool = False


@lru_cache(maxsize=4096)
def _days(year: int, month: int, day: int) -> float | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return float(calendar.timegm((year, month, day, 0, 0, 0)))


def _seconds(year: int, month: int, day: int, h: str, m: str, s: str, f: str | None) -> float | None:
    base = _days(year, month, day)
    if base is None:
        return None
    fraction = float("0." + f[1:]) if f else 0.0
    return base + int(h) * 3600 + int(m) * 60 + int(s) + fraction


def _near(reference: float | None, month: int, day: int, *rest: str | None) -> float | None:
    """A date without its year: the year that puts it closest to ``reference`` (else an arbitrary one)."""
    import time

    h, m, s, f = rest
    assert h is not None and m is not None and s is not None
    if reference is None:
        return _seconds(2000, month, day, h, m, s, f)
    year = time.gmtime(reference).tm_year
    found = [_seconds(y, month, day, h, m, s, f) for y in (year - 1, year, year + 1)]
    usable = [t for t in found if t is not None]
    return min(usable, key=lambda t: abs(t - reference)) if usable else None


def find(text: str, reference: float | None = None) -> Stamp | None:
    """The first time stamp in ``text``."""
    likely = _LIKELY.search(text)
    while likely is not None:
        # The longest stamp ends at most 14 characters behind what is looked for, and begins before it.
        match = _STAMP.search(text, _line_start(text, likely.start()))
        stamp = _stamp(match, reference) if match else None
        if stamp is not None or match is None:
            return stamp
        likely = _LIKELY.search(text, max(match.end(), likely.end()))
    return None


def find_last(text: str, reference: float | None = None) -> Stamp | None:
    """The last time stamp in ``text``; looks from the end, so a long text costs no more than a short one."""
    end = len(text)
    for reach in (512, 8192, end):
        start = _line_start(text, max(0, end - reach))
        found = None
        for likely in _LIKELY.finditer(text, start):
            found = likely
        if found is None:
            continue
        last = None
        for match in _STAMP.finditer(text, max(start, _line_start(text, found.start()))):
            last = match
        stamp = _stamp(last, reference) if last else None
        if stamp is not None:
            return stamp
    return None


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _stamp(match: re.Match[str], reference: float | None) -> Stamp | None:
    g = match.groupdict()
    partial = True
    seconds: float | None
    if g["Y"]:
        seconds = _seconds(int(g["Y"]), int(g["m"]), int(g["d"]), g["H"], g["M"], g["S"], g["f"])
        partial = False
    elif g["gm"]:
        seconds = _near(reference, int(g["gm"]), int(g["gd"]), g["gH"], g["gM"], g["gS"], g["gf"])
    elif g["lmon"]:
        month, day = _MONTHS[g["lmon"]], int(g["ld"])
        rest = (g["lH"], g["lM"], g["lS"], g["lf"])
        if g["lY"]:
            seconds, partial = _seconds(int(g["lY"]), month, day, *rest), False
        else:
            seconds = _near(reference, month, day, *rest)
    elif g["vm"]:
        seconds = _near(reference, int(g["vm"]), int(g["vd"]), g["vH"], g["vM"], g["vS"], g["vf"])
    elif g["boot"]:
        return Stamp(float(g["boot"].strip("[] ")), boot=True)
    else:
        if reference is None:
            return None
        clock = int(g["tH"]) * 3600 + int(g["tM"]) * 60 + int(g["tS"])
        midnight = reference - reference % 86400
        seconds = min(
            (midnight + clock + shift for shift in (-86400, 0, 86400)), key=lambda t: abs(t - reference)
        )
    return Stamp(seconds, partial=partial) if seconds is not None else None


def iso(seconds: float | None) -> str:
    """``2026-08-18T18:33:32`` for people and sorting; empty when not known."""
    import time

    if seconds is None:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
