"""The experiment as a whole. Validated values only: loading and messages are elsewhere.

Importing this costs pydantic (about 150 ms), so no command imports it before it needs a file.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from .fields import Group, Name, SlurmWord
from .resources import Chain, Environment, Recovery, Resources
from .stages import CommandStage, EvalStage, PretrainStage, StageName, TextStage

Stage = Annotated[TextStage | PretrainStage | EvalStage | CommandStage, Field(discriminator="kind")]


class Defaults(Environment):
    """Merged under each stage: what a stage gives itself wins, null there removes."""

    resources: Resources = Field(default_factory=Resources)
    chain: Chain = Field(default_factory=Chain)
    recovery: Recovery = Field(default_factory=Recovery)


class Experiment(Environment):
    """One experiment file."""

    name: Name = Field(description="Begins the run's id: a-z, 0-9 and '-'.")
    description: str = Field(default="", description="For people.", max_length=10_000)
    cluster: SlurmWord = Field(default="auto", description="A profile of clusters.yaml, or auto.")
    group: Group | None = Field(
        default=None, description="Unix group that may read the run's directory. null: only you."
    )
    vars: dict[str, Any] = Field(
        default_factory=dict, description="Values of your own, to refer to as ${vars.name}."
    )
    defaults: Defaults = Field(default_factory=Defaults)
    stages: dict[StageName, Stage] = Field(description="Name → stage.", min_length=1, max_length=100)

    def stage(self, name: str) -> Any:
        return self.stages[name]


def json_schema() -> dict[str, Any]:
    """JSON Schema of an experiment file, for editors."""
    schema = Experiment.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trainmaster experiment",
        **{key: value for key, value in schema.items() if key != "title"},
    }
