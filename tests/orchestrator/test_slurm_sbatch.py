"""What an sbatch proves about its job: recorded answers, and the table that reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.schedulers.slurm import messages, sbatch
from orchestrator.schedulers.slurm.messages import Meaning
from resiliency.edges import Completed
from tests.orchestrator.slurm_answers import DATA

CASES: list[dict[str, Any]] = json.loads((DATA / "sbatch-answers.json").read_text())


def completed(case: dict[str, Any]) -> Completed:
    return Completed(("sbatch",), case["returncode"], case["stdout"], case["stderr"], 1.0)


@pytest.mark.parametrize("case", CASES, ids=[f"{c['name']}-{c['seen']}" for c in CASES])
def test_answer(case: dict[str, Any]) -> None:
    answer = sbatch.read(completed(case))
    means = "accepted" if answer.job_id else answer.meaning and answer.meaning.value
    assert means == case["means"]
    if answer.job_id is None:
        assert answer.text, "a person must be told something"
    if means in ("rejected", "deferred", "unreachable"):
        assert answer.hint, "and what to do next"


def test_an_id_is_taken_only_from_a_line_of_its_own() -> None:
    answer = sbatch.read(Completed(("sbatch",), 0, "3;beta\n", "", 1.0))
    assert answer.job_id == "3"
    answer = sbatch.read(Completed(("sbatch",), 0, "Submitted batch job 3\n", "", 1.0))
    assert answer.meaning is Meaning.UNCERTAIN


def test_each_row_of_the_table_decides_some_recorded_text_or_says_where_it_stands() -> None:
    errors = [c["stderr"] for c in CASES]
    for row in messages.ROWS:
        re.compile(row.pattern)
        if re.fullmatch(r"[\d., ]+", row.seen):
            assert any(messages.meaning(text) is row for text in errors), row.pattern
    assert len({row.pattern for row in messages.ROWS}) == len(messages.ROWS)


@given(st.text(), st.integers(-20, 255).filter(bool))
def test_an_unknown_text_never_counts_as_refused(text: str, code: int) -> None:
    if messages.meaning(text) is None and code not in (126, 127):
        answer = sbatch.read(Completed(("sbatch",), code, "", text, 1.0))
        assert answer.meaning is Meaning.UNCERTAIN


@pytest.mark.parametrize("case", [c for c in CASES if c["means"] == "rejected"], ids=lambda c: c["name"])
def test_a_time_out_beside_any_refusal_is_doubt(case: dict[str, Any]) -> None:
    text = case["stderr"] + "sbatch: error: Socket timed out on send/recv operation\n"
    found = messages.meaning(text)
    assert found is not None and found.meaning is Meaning.UNCERTAIN


def test_arguments() -> None:
    script = Path("/runs/x.sbatch")
    assert sbatch.arguments(script) == ["sbatch", "--parsable", "--export=ALL", "/runs/x.sbatch"]
    words = sbatch.arguments(script, after=["3", "4"], held=True)
    assert words[3:5] == ["--hold", "--dependency=afterany:3:4"]
