"""Names that go through Slurm and file systems and come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency import contract

_runs = st.from_regex(contract.RUN_ID, fullmatch=True)
_stages = st.from_regex(contract.STAGE_NAME, fullmatch=True)


@given(_runs, _stages, st.integers(1, 10**6))
def test_a_token_comes_back_as_it_went(run: str, stage: str, link: int) -> None:
    token = contract.token(run, stage, link)
    assert contract.parse_token(token) == (run, stage, link)
    assert contract.parse_token(contract.COMMENT_PREFIX + token) == (run, stage, link)
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(st.text(max_size=40))
def test_what_is_not_ours_is_nobody_s(text: str) -> None:
    parsed = contract.parse_token(text)
    assert parsed is None or contract.token(*parsed) in (text, text.removeprefix("trainmaster:"))


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.1", "A.b.001", "a.b.001 ", "a.b.001\n", "../x.b.001"])
def test_near_misses_are_no_tokens(text: str) -> None:
    assert contract.parse_token(text) is None


def test_an_attempt_id_comes_back_as_it_went() -> None:
    assert contract.parse_attempt_id(contract.attempt_id("c-1", "1234_5", 2)) == ("c-1", "1234_5", 2)
    for text in ("", "c/1", "1.0", "c/1.x", "c /1.0", "c/1.0 "):
        assert contract.parse_attempt_id(text) is None


def test_everything_lies_inside_the_run_directory() -> None:
    paths = contract.RunPaths(Path("/runs/r"))
    token = contract.token("r", "train", 1)
    found = [
        *(paths.run_json, paths.experiment, paths.lock, paths.journal, paths.scripts, paths.claims),
        *(paths.script(token), paths.claim(token), paths.stage_config("train"), paths.logs("train")),
        *(paths.job_log("train", 1), paths.node_log("train", 1, 0, "n1"), paths.evidence("train")),
        *(paths.artifact("train"), paths.checkpoints("train")),
    ]
    assert len(set(found)) == len(found)
    assert all(path.is_relative_to(paths.root) for path in found)
