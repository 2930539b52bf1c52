"""Small experiment files for tests, and their faults as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec.errors import Fault, render
from orchestrator.spec.load import LoadedExperiment, load_experiment
from resiliency.errors import SpecError

GOOD = """\
name: demo
stages:
  data:
    kind: text
  train:
    kind: pretrain
    needs: data
    model: {preset: tiny}
    train: {steps: 20}
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "exp.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def load(directory: Path, text: str, *overrides: str, **options: Any) -> LoadedExperiment:
    return load_experiment(write(directory, text), overrides, **options)


def faults(directory: Path, text: str, *overrides: str, **options: Any) -> list[Fault]:
    """The faults of a file that must have some."""
    with pytest.raises(SpecError) as caught:
        load(directory, text, *overrides, **options)
    found = [f for f in caught.value.faults if isinstance(f, Fault)]
    assert found and len(found) == len(caught.value.faults)
    return found


def lines(directory: Path, text: str, *overrides: str, **options: Any) -> list[str]:
    """The same as a person reads them, without the directory."""
    return [
        line.replace(f"{directory}/", "") for line in render(faults(directory, text, *overrides, **options))
    ]


def one(directory: Path, text: str, *overrides: str, **options: Any) -> str:
    """The only line there may be."""
    found: Sequence[str] = lines(directory, text, *overrides, **options)
    assert len(found) == 1, found
    return found[0]
