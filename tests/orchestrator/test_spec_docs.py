"""The reference pages name every key of the schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec import resources, schema, stages
from orchestrator.spec.profile import EnvironmentModel, ProfileModel

DOCS = Path(__file__).resolve().parents[2] / "docs"


def words(page: str) -> set[str]:
    """Everything in backticks, taken apart."""
    spans = re.findall(r"`([^`\n]+)`", (DOCS / page).read_text())
    return {word for span in spans for word in re.findall(r"[a-z0-9_]+", span)}


@pytest.mark.parametrize(
    ("pages", "models"),
    [
        (
            ["experiment-file.md"],
            [
                schema.Experiment,
                schema.Defaults,
                stages.CommandStage,
                resources.Resources,
                resources.Chain,
                resources.Recovery,
                resources.Container,
            ],
        ),
        (
            ["experiment-file.md", "stages.md"],
            [
                stages.TextStage,
                stages.PretrainStage,
                stages.EvalStage,
                stages.Train,
                stages.Parallel,
                stages.Checkpoint,
            ],
        ),
        (["clusters.md"], [ProfileModel, EnvironmentModel]),
    ],
)
def test_every_key_is_documented(pages: list[str], models: list[Any]) -> None:
    documented = set().union(*(words(page) for page in pages))
    for model in models:
        keys = {field.alias or name for name, field in model.model_fields.items()}
        assert keys <= documented, f"{model.__name__}: {sorted(keys - documented)}"


def test_the_example_of_the_page_loads(tmp_path: Path) -> None:
    from orchestrator.clusters import load_profiles
    from orchestrator.spec.load import load_experiment

    for page, name in (("experiment-file.md", "exp.yaml"), ("clusters.md", "clusters.yaml")):
        block = re.search(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.S)
        assert block is not None
        (tmp_path / name).write_text(block[1])
    assert load_experiment(tmp_path / "exp.yaml").experiment.name == "demo"
    assert load_profiles(tmp_path, {}).default == "big"
