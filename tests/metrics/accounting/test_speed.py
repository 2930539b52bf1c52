"""Training efficiency from progress words: exact where all are read, close where they are sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.accounting import speed
from metrics.accounting.summary import Scope, Summary, summarise
from metrics.ledger import Ledger
from tests.metrics.accounting.stories import RUN, Story
from tests.metrics.rundirs import lines, write


def summed(tmp_path: Path, story: Story) -> Summary:
    run_dir = write(tmp_path / "runs" / RUN, {"w": lines(story.events)})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        return summarise(ledger, Scope(run=RUN))


def training(*, words: int, slow: int = 0, spent: bool = True) -> Story:
    """Words 10 s apart: 8 s of 8 steps, 1 s of data, 1 s of saving. ``slow``: of so many, steps take 4 s."""
    story = Story()
    story.job("7.0", 1, 0.0, 0.0, 20.0 + 10 * words, state="COMPLETED")
    story.at(1.0, "role.started", cycle=0)
    story.at(
        10.0, "workload.timing", cycle=0, phases={}, step=0, flops_per_token=2e9, gpus=4, peak_flops=1e12
    )
    step = 0
    for n in range(words):
        sections = {"step": 8.0 * n, "data": 1.0 * n, "checkpoint": 1.0 * n}
        data = {"step": step, "section": "step", "tokens": 1000 * step, "memory_bytes": 5e9 + n}
        story.at(10.0 + 10 * n, "progress", cycle=0, **data, **({"spent": sections} if spent else {}))
        step += 2 if n < slow else 8
    return story


def value(found: Summary, name: str) -> float | None:
    figure = found.figure(name)
    assert figure is not None
    return figure.value


def test_every_word_of_a_small_run_is_read(tmp_path: Path) -> None:
    found = summed(tmp_path, training(words=101, slow=10))
    # 90 pairs of 8 steps in 8 s, 10 of 2 steps: 20 of 740 steps take 4 s, 2.7 % of them.
    assert [value(found, f"step_time_p{n}") for n in (50, 90, 99)] == [1.0, 1.0, 4.0]
    rate = 740 * 1000 / 800
    assert value(found, "tokens_per_second") == pytest.approx(rate)
    assert value(found, "tflops_per_gpu") == pytest.approx(rate * 2e9 / 4 / 1e12)
    assert value(found, "mfu") == pytest.approx(rate * 2e9 / 4 / 1e12)
    assert value(found, "data_wait_share") == pytest.approx(1 / 9, rel=1e-6)
    assert value(found, "memory_high_water") == 5e9 + 100
    figure = found.figure("mfu")
    assert figure is not None and figure.note == "peak 1 TFLOP/s"


def test_of_a_large_run_a_sample_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BUDGET", 60)
    found = summed(tmp_path, training(words=1000))
    figure = found.figure("step_time_p90")
    assert figure is not None and figure.value == 1.0
    assert (figure.n, figure.note) == (30, "sampled")
    assert value(found, "tokens_per_second") == pytest.approx(1000.0)


def test_what_a_program_does_not_tell_is_not_known(tmp_path: Path) -> None:
    found = summed(tmp_path, training(words=20, spent=False))
    assert value(found, "step_time_p50") == 1.25  # stalls cannot be told from steps
    figure = found.figure("data_wait_share")
    assert figure is not None and figure.value is None and "does not tell" in figure.note


def test_what_a_program_counts_that_does_no_steps_is_no_step(tmp_path: Path) -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 0.0, 100.0, state="COMPLETED")
    for n in range(5):
        story.at(10.0 * n, "progress", cycle=0, step=1000 * n, section="read", spent={"read": 10.0 * n})
    figure = summed(tmp_path, story).figure("step_time_p50")
    assert figure is not None and (figure.value, figure.n) == (None, 0)
