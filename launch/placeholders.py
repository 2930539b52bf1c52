"""Placeholders in a user's command: exactly the documented ones, nothing else is touched or evaluated.

``tests/launch/test_roles.py`` feeds it hostile values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from resiliency.errors import TrainmasterError

from .config import StageConfig

_PLACEHOLDER = re.compile(r"\{(stage_dir|artifact_dir|checkpoint_dir|run_dir|link|input:[A-Za-z0-9_-]+)\}")


def fill(argv: Sequence[str], config: StageConfig, run_dir: Path, link: int) -> list[str]:
    """Replace placeholders in one pass: a value that looks like one stays as it is.

    Raises TrainmasterError for an ``{input:NAME}`` that the stage does not need.
    """
    values = {
        "stage_dir": str(config.stage_dir),
        "artifact_dir": str(config.artifact_dir),
        "checkpoint_dir": str(config.checkpoint_dir),
        "run_dir": str(run_dir),
        "link": str(link),
        **{f"input:{name}": str(path) for name, path in config.inputs.items()},
    }

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            inputs = ", ".join(config.inputs) or "none"
            raise TrainmasterError(
                f"the command of stage {config.name!r} uses {{{name}}}, which it does not need",
                hint=f"add it to the stage's `needs` (now: {inputs})",
            )
        return values[name]

    return [_PLACEHOLDER.sub(value, word) for word in argv]
