"""From the ends of all ranks to the one that speaks for the attempt. Pure.

A contract code that only a rank knows must not drown in the ones its death caused elsewhere.
``tests/launch/test_outcome.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from resiliency import exitcodes

#: What a rank says when another one has gone: it followed, whatever it shows. Words of gloo (torch 2),
#: NCCL (2.18 on) and torch.distributed's TCPStore.
_FOLLOWED: Final = re.compile(
    r"Connection (?:closed|reset) by peer|Connection reset|Broken pipe|Socket closed|remote process exited"
    r"|NCCL (?:error|communicator was aborted)|ncclRemoteError|Timed out waiting \d+ms for (?:recv|send)"
    r"|DistNetworkError|DistStoreError|failed to recv, got 0 bytes",
    re.IGNORECASE,
)

#: Codes with which a program speaks for the whole stage, most binding first.
FIRM: Final = (
    exitcodes.NEEDS_HUMAN,
    exitcodes.RESULT_REJECTED,
    exitcodes.RERUN_ELSEWHERE,
    exitcodes.DO_NOT_RESTART,
)
#: Codes after which the other ranks are not at fault and may go on to their own end.
PEACEFUL: Final = frozenset({exitcodes.COMPLETE, exitcodes.PROGRESS_MADE})


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended. ``rank`` None: a whole node or launcher, of whose ranks nothing is known.

    ``at``: Unix seconds on its node. ``killed``: the agent killed it, so its code says little.
    ``summary``: type and message of the exception, if any; ``category``: of the taxonomy, if it is plain.
    """

    rank: int | None
    code: int
    at: float
    summary: str = ""
    category: str = ""
    killed: bool = False
    node: str = ""

    @property
    def failed(self) -> bool:
        return self.code not in PEACEFUL

    @property
    def followed(self) -> bool:
        """Whether it shows only that another rank had gone."""
        return bool(_FOLLOWED.search(self.summary))

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, raw: Mapping[str, Any]) -> RankEnd:
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})


def speaker(ends: Iterable[RankEnd]) -> RankEnd | None:
    """The end whose code is the attempt's; None when there is none.

    76, 17, 16, 93 before any other failure, of those the earliest that we did not cause; then 75; then 0.
    """

    def order(end: RankEnd) -> tuple[int, bool, bool, bool, float]:
        if end.code in FIRM:
            tier = FIRM.index(end.code)
        elif end.failed:
            tier = len(FIRM)
        else:
            tier = len(FIRM) + (1 if end.code == exitcodes.PROGRESS_MADE else 2)
        # A rank with an exception to show explains more than one that vanished beside it, unless what it
        # shows is that the other one vanished.
        return (tier, end.killed, end.followed, not end.summary, end.at)

    return min(ends, key=order, default=None)
