"""sacct is asked once, for all users and requeues, without anything that needs a zone."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.importing import live
from resiliency.edges import Completed
from resiliency.errors import SchedulerError, SchedulerUnreachable, UsageError


class Answer:
    def __init__(self, code: int | None, out: str = "", err: str = "") -> None:
        self.done = (code, out, err)
        self.argv: list[str] = []
        self.env: dict[str, str] = {}

    def __call__(self, argv: Any, *, timeout_s: float, env: Any = None, **_: Any) -> Completed:
        self.argv, self.env = list(argv), dict(env)
        code, out, err = self.done
        return Completed(tuple(argv), code, out, err, 0.1)


def test_the_question_and_its_answer() -> None:
    answer = Answer(0, "JobIDRaw\x1fState\n1\x1fFAILED\n")
    assert live.ask(answer, {}, "8w", "c2")[:2] == ["JobIDRaw\x1fState", "1\x1fFAILED"]
    assert answer.argv[:3] == ["sacct", "-M", "c2"] and "--starttime=now-8weeks" in answer.argv
    assert {"--duplicates", "--allusers"} <= set(answer.argv) and answer.env["SLURM_TIME_FORMAT"] == "%s"


def test_what_may_go_wrong() -> None:
    with pytest.raises(UsageError, match="'soon' is no length"):
        live.ask(Answer(0), {}, "soon", None)
    with pytest.raises(SchedulerUnreachable):
        live.ask(Answer(1, err="sacct: error: Problem talking to the database: refused"), {}, "1d", None)
    with pytest.raises(SchedulerError, match="Invalid field"):
        live.ask(Answer(1, err="Invalid field requested"), {}, "1d", None)
