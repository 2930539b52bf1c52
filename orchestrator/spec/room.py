"""Does a link's time limit leave time for work? Pure sums, shown in the message when they do not fit.

A limit too short for start-up, one interval and a save would be burnt link after link without progress.
``tests/orchestrator/test_spec_room.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from .durations import clock, parse_time, spoken

#: Least useful time of a link when the experiment does not say how long an interval takes.
LEAST_USEFUL_S: Final = 20.0
_MARGIN_S: Final = 30.0


def signal_lead(chain: Mapping[str, Any], time_s: float) -> float:
    """Seconds before the limit at which the stage is told to stop. ``auto``: a save and 30 s, at most
    half the limit."""
    lead = chain["signal_lead"]
    return min(chain["save_time"] + _MARGIN_S, time_s / 2) if lead == "auto" else float(lead)


def useful_s(resources: Mapping[str, Any], chain: Mapping[str, Any], early_s: float) -> float:
    """Seconds of one link left for work, the save of one interval taken off."""
    time_s = parse_time(resources["time"])
    lead = signal_lead(chain, time_s)
    return float(time_s - chain["startup"] - lead - early_s - chain["save_time"])


def faults(
    resources: Mapping[str, Any], chain: Mapping[str, Any], early_s: float
) -> list[tuple[tuple[str, str], str, str]]:
    """((section, key), message, expected) for every reason why the limit cannot work."""
    time_s = parse_time(resources["time"])
    lead, save, startup = signal_lead(chain, time_s), chain["save_time"], chain["startup"]
    found = []
    # An automatic lead that is too short comes from a limit that is: said below.
    if lead < save and chain["signal_lead"] != "auto":
        found.append(
            (
                ("chain", "signal_lead"),
                f"the signal comes {spoken(lead)} before the limit, a save takes {spoken(save)} (save_time)",
                f"at least {spoken(save)}",
            )
        )
    interval = chain["interval_time"]
    need = LEAST_USEFUL_S if interval is None else interval
    left = useful_s(resources, chain, early_s)
    if left < need:
        early = f" - {spoken(early_s)} (signals may come early)" if early_s else ""
        what = "one interval takes" if interval is not None else "a link needs at least"
        full_lead = save + _MARGIN_S if chain["signal_lead"] == "auto" else lead
        more = clock(math.ceil(startup + full_lead + early_s + save + need))
        found.append(
            (
                ("resources", "time"),
                f"leaves no time for work: {spoken(time_s)} - {spoken(startup)} (startup) - {spoken(lead)} "
                f"(signal lead){early} - {spoken(save)} (save) = {spoken(left)}, {what} {spoken(need)}",
                f'at least "{more}", or smaller chain.startup, save_time, signal_lead',
            )
        )
    total = chain["total_time"]
    if total is not None and parse_time(total) < time_s:
        message = f"{total} is less than the limit of one link ({resources['time']})"
        found.append((("chain", "total_time"), message, "more"))
    return found
