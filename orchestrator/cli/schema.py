"""``schema``: JSON Schema of the experiment file, for editors."""

from __future__ import annotations

from .commands import verb
from .common import emit


@verb(
    "Example: python -m orchestrator schema > experiment.schema.json   (then in VS Code: "
    "# yaml-language-server: $schema=experiment.schema.json)"
)
def command() -> None:
    """Print the JSON Schema of the experiment file."""
    from ..spec.schema import json_schema

    emit(json_schema())
