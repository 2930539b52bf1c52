"""Small builders of journal events for tests of the pure core."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from resiliency import contract
from resiliency.events import Event
from resiliency.policy import Budgets
from resiliency.state import RunState, fold

RUN = "demo-20260101-000000-abcd"


@dataclass(frozen=True)
class Chain:
    """A stage's chain as ``advance`` sees it."""

    name: str
    needs: tuple[str, ...] = ()
    lookahead: int = 2
    max_links: int = 10
    budgets: Budgets = field(default_factory=Budgets)


class Story:
    """Writes events in order, a second apart, as one login writer and the jobs themselves would."""

    def __init__(self, chains: Iterable[Chain]) -> None:
        self._seq = itertools.count(1)
        self.events: list[Event] = []
        self.now = 1000.0
        self.say(
            "run.created",
            {"stages": [{"name": c.name, "kind": "command", "needs": list(c.needs)} for c in chains]},
        )

    def say(self, type_: str, data: dict[str, Any] | None = None, **fields: Any) -> Story:
        self.now += 1.0
        seq = next(self._seq)
        self.events.append(Event(type_, RUN, "login", seq, self.now, self.now, data=data or {}, **fields))
        return self

    def accepted(self, stage: str, link: int, job_id: str, *, epoch: int = 0) -> Story:
        token = contract.token(RUN, stage, link)
        data = {"token": token, "stage": stage, "link": link, "cluster": "c", "epoch": epoch}
        self.say("submission.intent", data, stage=stage)
        return self.say("submission.accepted", {"token": token, "job_id": job_id}, stage=stage)

    def observed(
        self, stage: str, link: int, job_id: str, state: str, restart: int = 0, **more: Any
    ) -> Story:
        data = {
            "token": contract.token(RUN, stage, link),
            "cluster": "c",
            "job_id": job_id,
            "restart_count": restart,
            "state": state,
            **more,
        }
        return self.say("job.observed", data, stage=stage, attempt=f"c/{job_id}.{restart}")

    def inside(
        self,
        type_: str,
        stage: str,
        job_id: str,
        data: dict[str, Any] | None = None,
        restart: int = 0,
    ) -> Story:
        return self.say(type_, data, stage=stage, attempt=f"c/{job_id}.{restart}")

    def ran(self, stage: str, link: int, job_id: str, exit_code: int, **finished: Any) -> Story:
        """An attempt that passed the gate and ended with ``exit_code``."""
        token = contract.token(RUN, stage, link)
        self.inside("attempt.started", stage, job_id, {"token": token, "nodes": "n1"})
        self.inside("attempt.gate", stage, job_id, {"verdict": "go"})
        return self.inside("attempt.finished", stage, job_id, {"exit_code": exit_code, **finished})

    @property
    def state(self) -> RunState:
        return fold(self.events)
