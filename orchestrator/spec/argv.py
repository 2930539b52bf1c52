"""A command as a list of words: split like a shell would, but no shell ever runs it.

``tests/orchestrator/test_spec_stages.py``.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator


def _words(value: Any) -> Any:
    if isinstance(value, list):  # a number among the words is its text
        return [str(w) if type(w) in (int, float) else w for w in value]
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error} (is a quote missing?)") from error


def _program(value: list[str]) -> list[str]:
    if not value or not value[0].strip():
        raise ValueError("is empty; expected a program and its arguments")
    if any("\0" in word for word in value):
        raise ValueError("must not contain a NUL character")
    return value


Argv = Annotated[list[str], BeforeValidator(_words), AfterValidator(_program)]
