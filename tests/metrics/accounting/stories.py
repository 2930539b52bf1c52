"""Events of invented runs, for the tests of the accounting. Times are seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metrics.accounting.facts import attempt_facts, set_aside
from metrics.accounting.tiling import StageFacts, Tiled, tile
from metrics.accounting.words import Told
from metrics.ledger.nodes import names
from resiliency import contract
from resiliency.events import Event
from resiliency.state import fold

RUN = "demo-20260101-000000-abcd"
STAGE = "train"


class Story:
    """Collects events; each call of ``at`` is one. ``skew``: added to the time of all that follow."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.skew = 0.0

    def at(
        self, ts: float, type: str, job: str | None = "7.0", cycle: int | None = None, **data: Any
    ) -> None:
        attempt = f"c1/{job}" if job else None
        seq = len(self.events) + 1
        self.events.append(
            Event(
                type,
                RUN,
                "w",
                seq,
                ts + self.skew,
                0.0,
                STAGE,
                attempt,
                cycle,
                data.pop("on", None),
                data=data,
            )
        )

    def job(
        self,
        job: str,
        link: int,
        submitted: float | None,
        started: float | None,
        ended: float | None,
        nodes: str = "n[1-2]",
        state: str = "FAILED",
    ) -> None:
        """The scheduler's last word on a job."""
        self.at(
            0.0,
            "job.observed",
            job,
            token=contract.token(RUN, STAGE, link),
            state=state if ended is not None else "RUNNING" if started is not None else "PENDING",
            nodes=nodes,
            submitted_at=submitted,
            started_at=started,
            ended_at=ended,
        )

    def words(self, job: str, cycle: int, *steps: tuple[float, int]) -> None:
        for ts, step in steps:
            self.at(ts, "progress", job, cycle, step=step, section="step")

    def tiled(self, now: float | None = None) -> list[Tiled]:
        return tiled(self.events, now)


def tiled(told: Iterable[Event], now: float | None = None) -> list[Tiled]:
    """The accounting of the stage in these events."""
    events = sorted(told, key=lambda event: event.order)
    stage = fold(events).stage(STAGE)
    aside = set_aside(events)
    attempts = []
    for attempt in stage.chain():
        mine = [e for e in events if e.attempt == attempt.id]
        listed = names(attempt.record.nodes) if attempt.record else []
        attempts.append(attempt_facts(attempt, mine, listed, aside))
    facts = StageFacts(tuple(attempts), stage.completed is not None, stage.terminal)
    return tile(facts, Told(events), None if now is None else round(now * 1000))


def shown(tiled: Tiled, track: int = 0) -> list[tuple[str, float]]:
    """(kind, seconds) of a track; an open span has None."""
    spans = tiled.tracks[track].spans
    return [(span.kind, None if span.end is None else span.ms / 1000) for span in spans]  # type: ignore[misc]


def two_attempts() -> Story:
    """One failure got over in the allocation, one planned hand-over, complete. Steps take one second.

    7.0: submitted 0, started 100, ended 550. Its ranks begin at 122 (timing at 160: 38 s of phases), step 1
    is done at 160, step 101 at 260, is saved (4 s), step 201 is done at 364. Something breaks at 366, is
    noticed at 370, decided at 371. Ranks run at 375, their program at 385, from step 101; step 102 is done at
    400, step 201 at 499, step 241 at 539. A stop was asked at 538, the last save is whole at 545.
    8.0: queued ahead at 105, started 560, ended 660. From step 241 at 600 to step 291 at 650, saved at 655.
    """
    story = Story()
    story.job("7.0", 1, 0.0, 100.0, 550.0)
    story.at(101.0, "attempt.started", link=1, nodes="n[1-2]")
    story.at(110.0, "cycle.started", cycle=0, nodes=["n1", "n2"], spares=[])
    story.at(112.0, "role.started", cycle=0, role="trainer", on="n1")
    story.words("7.0", 0, (160.0, 1))
    phases = {"imports": 10, "groups": 5, "model": 10, "data": 5, "load": 2, "first_step": 6}
    story.at(160.0, "workload.timing", cycle=0, phases=phases, step=1)
    story.words("7.0", 0, (200.0, 41), (250.0, 91), (274.0, 111))
    story.at(275.0, "checkpoint.committed", cycle=0, step=101, path="a", stall_s=4.0)
    story.words("7.0", 0, (300.0, 137), (364.0, 201))
    story.at(370.2, "incident", cycle=0, kind="rank_end", onset=366.0, detected=370.0, node="n2", rank=1)
    story.at(370.9, "verdict", cycle=0, category="gpu_fault", confidence=0.9, node="n2")
    story.at(371.0, "decision", cycle=0, action="restart_in_job", rule="in-job:gpu_fault")
    story.at(371.5, "cycle.ended", cycle=0, category="gpu_fault", step=201, node="n2", continued=True)
    story.at(373.0, "cycle.started", cycle=1, nodes=["n1", "n2"], spares=[])
    story.at(375.0, "role.started", cycle=1, role="trainer", on="n1")
    story.at(398.0, "workload.resumed", cycle=1, step=101)
    story.words("7.0", 1, (400.0, 102))
    story.at(400.0, "workload.timing", cycle=1, phases={"imports": 8, "load": 5, "first_step": 2}, step=102)
    story.words("7.0", 1, (450.0, 152), (539.0, 241))
    story.at(538.0, "drain.requested", reason="time_limit", signal="USR2")
    story.at(545.0, "checkpoint.committed", cycle=1, step=241, path="b", stall_s=5.0)
    story.at(546.0, "role.exited", cycle=1, role="trainer", exit_code=75)
    story.at(547.0, "attempt.finished", exit_code=75, category="planned_rollover", step=241)
    story.job("8.0", 2, 105.0, 560.0, 660.0, state="COMPLETED")
    story.at(561.0, "attempt.started", "8.0", link=2, nodes="n[1-2]")
    story.at(565.0, "cycle.started", "8.0", 0, nodes=["n1", "n2"], spares=[])
    story.at(566.0, "role.started", "8.0", 0, role="trainer", on="n1")
    story.at(600.0, "workload.resumed", "8.0", 0, step=241)
    story.words("8.0", 0, (610.0, 251), (650.0, 291))
    story.at(655.0, "checkpoint.committed", "8.0", 0, step=291, path="c", stall_s=5.0)
    story.at(656.0, "role.exited", "8.0", 0, role="trainer", exit_code=0)
    story.at(656.5, "stage.completed", "8.0", epoch=0, artifact="c")
    story.at(657.0, "attempt.finished", "8.0", exit_code=0, category="healthy", step=291)
    return story
