"""A person on this machine, with the local scheduler."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.person import Person


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Submits to the profile ``here``; whatever is left in its queue is cancelled at the end."""
    one = Person(tmp_path, dict(os.environ), "here", here={"scheduler": "local", "max_running": 4})
    yield one
    if (one.home / "local" / "queue.db").exists():
        from orchestrator.schedulers.local.backend import LocalScheduler

        scheduler = LocalScheduler(one.home)
        with sqlite3.connect(one.home / "local" / "queue.db") as db:
            jobs = [str(row[0]) for row in db.execute("SELECT id FROM job")]
        scheduler.cancel(jobs)
