"""The processes an agent started, and what their ends say together with the ranks' records.

``tests/launch/test_segment.py``, ``test_records.py``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resiliency import exitcodes

from .outcome import RankEnd
from .records import LOST, Records
from .roles import Process


@dataclass
class Started:
    """One child. ``ended_at``: Unix seconds; ``killed_at``: the agent killed it then, or asked it to end."""

    process: Process
    popen: subprocess.Popen[bytes]
    ended_at: float | None = None
    killed_at: float | None = None

    @property
    def killed(self) -> bool:
        return self.killed_at is not None

    def kill_now(self) -> None:
        """Note that its end, if it has not come yet, is the agent's doing."""
        if self.killed_at is None and self.popen.poll() is None:
            self.killed_at = time.time()


def ends_so_far(started: Sequence[Started], records: Records, *, final: bool = False) -> list[RankEnd]:
    """How the ranks ended that have. A child's own exit code is the truth, a record explains it."""
    recorded = records.ends(final=final)
    found: list[RankEnd] = []
    for one in started:
        rank = one.process.rank
        if rank is None or one.ended_at is None:
            continue
        said = recorded.pop(rank, None)
        end = RankEnd(
            rank,
            exitcodes.from_returncode(one.popen.returncode),
            one.ended_at,
            killed=one.killed,
            node=records.node,
        )
        if said is not None and said.code == end.code:
            end = replace(said, killed=one.killed)
        found.append(end)
    direct = {one.process.rank for one in started}
    return found + [end for rank, end in recorded.items() if rank not in direct]


def final_ends(started: Sequence[Started], records: Records, ranks: int) -> list[RankEnd]:
    """After all have ended: what is unknown of a rank was lost.

    ``ranks``: how many this node has. Once all of them have spoken, how their launcher ended says nothing:
    ft_launcher ends with 1 after a TERM in spite of ranks that saved, and the agent may have ended it.
    """
    ends = ends_so_far(started, records, final=True)
    for one in started:
        if one.process.rank is not None:
            continue
        if one.killed_at is not None:
            # Ranks without a word of their own were killed with their launcher, unless they had gone before.
            at = one.killed_at
            ends = [
                replace(e, killed=e.killed or (e.code == LOST and not e.summary and e.at >= at)) for e in ends
            ]
        if len(ends) < ranks:
            code = exitcodes.from_returncode(one.popen.returncode or 0)
            ended = one.ended_at or time.time()
            # A launcher that says 0 although ranks are missing never started them.
            ends.append(RankEnd(None, code or 1, ended, killed=one.killed, node=records.node))
    return ends
