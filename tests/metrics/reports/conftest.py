"""A summary of the run computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.accounting.advise import Advice
from metrics.accounting.summary import Scope, Summary, summarise
from metrics.ledger import Ledger
from tests.metrics.accounting.stories import RUN, two_attempts
from tests.metrics.rundirs import lines, write

ADVICE = Advice(None, None, (), ("spares: nothing is known",))
Make = Callable[..., Summary]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(scope: Scope | None = None) -> Summary:
        ledger = Ledger.open(tmp_path / "ledger.db")
        run_dir = write(tmp_path / "runs" / RUN, {"w": lines(two_attempts().events)})
        (run_dir / "stages" / "train").mkdir(parents=True, exist_ok=True)
        (run_dir / "stages" / "train" / "stage.json").write_text(json.dumps({"launch": {"gpus_per_node": 4}}))
        ledger.ingest_run(run_dir)
        return summarise(ledger, scope)

    return made
