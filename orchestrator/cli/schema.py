"""``schema``: JSON Schema of the experiment file, for editors."""

from __future__ import annotations

from .common import emit, errors_shown

EXAMPLE = (
    "Example: python -m orchestrator schema > experiment.schema.json   (then in VS Code: "
    "# yaml-language-server: $schema=experiment.schema.json)"
)


def command() -> None:
    """Print the JSON Schema of the experiment file."""
    with errors_shown():
        from ..spec.schema import json_schema

        emit(json_schema())
