"""Field types of the schema: each refuses what it cannot mean with a sentence, and guesses nothing.

A number in quotes is not a number, ``true`` is not 1, a text with a line break does not fit a Slurm
directive. ``tests/orchestrator/test_spec_schema.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    WithJsonSchema,
)

from . import durations


class WrongField(ValueError):
    """Fields that do not fit together: said at ``key``, the one that is likelier to be wrong."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Model(BaseModel):
    """Base of every section: unknown keys are faults, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def _whole(value: Any) -> Any:
    # 1e6 is how people write a million steps; 1.5 stays a float and is refused.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, Strict(), BeforeValidator(_whole)]
Positive = Annotated[Whole, Field(ge=1)]
NotNegative = Annotated[Whole, Field(ge=0)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


Text = Annotated[str, AfterValidator(_one_line)]


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is not {expected}")
        return value

    return check


# What a #SBATCH directive carries as one word: no blank, quote, backslash or comment sign.
SLURM_WORD = "letters, digits and . _ - + : @ , / = only"
_WORD = r"[A-Za-z0-9._+:@,/=-]{1,200}"
SlurmWord = Annotated[str, AfterValidator(_matching(_WORD, f"a Slurm name ({SLURM_WORD})"))]
# Constraints and node lists have operators: (a100|h100)&ib, [rack1*2], node[1-4,7].
SlurmExpression = Annotated[
    str,
    AfterValidator(
        _matching(r"[A-Za-z0-9._+:@,/=|&*()\[\]!-]{1,1000}", "a Slurm expression (no blanks or quotes)")
    ),
]
Memory = Annotated[
    str,
    AfterValidator(_matching(r"\d{1,12}(\.\d+)?[KMGTkmgt]?", "a size for Slurm, such as 64G or 900M")),
]
NAME = r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?"
Name = Annotated[
    str,
    AfterValidator(
        _matching(NAME, "a name (a-z, 0-9 and '-', at most 48 characters; it begins the run's id)")
    ),
]
Group = Annotated[str, AfterValidator(_matching(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "a unix group's name"))]
EnvName = Annotated[
    str,
    AfterValidator(_matching(r"[A-Za-z_][A-Za-z0-9_]{0,199}", "the name of an environment variable")),
]


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


def _env_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


EnvValue = Annotated[str, BeforeValidator(_env_value), AfterValidator(_no_nul)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def listed(item: Any) -> Any:
    """A list of ``item``; one text alone is a list of one."""
    return Annotated[list[item], BeforeValidator(_listed)]


def _wall_time(value: Any) -> str:
    return durations.clock(durations.parse_time(value))


def _span(value: Any) -> float:
    return durations.parse_seconds(value)


def _lead(value: Any) -> Any:
    return "auto" if value == "auto" else durations.parse_seconds(value)


def _expects(text: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add what was expected to the sentence of ``check``."""

    def checked(value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise ValueError(f"{error}; expected {text}") from error

    return checked


_TIME_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "number", "exclusiveMinimum": 0}]}
WallTime = Annotated[
    str,
    PlainValidator(_expects(durations.TIME_EXPECTED, _wall_time)),
    WithJsonSchema({**_TIME_SCHEMA, "description": durations.TIME_EXPECTED}),
]
Seconds = Annotated[
    float,
    PlainValidator(_expects(durations.SECONDS_EXPECTED, _span)),
    WithJsonSchema({**_TIME_SCHEMA, "description": durations.SECONDS_EXPECTED}),
]
Lead = Annotated[
    Any,
    PlainValidator(_expects("auto, or " + durations.SECONDS_EXPECTED, _lead)),
    WithJsonSchema({**_TIME_SCHEMA, "description": "auto, or " + durations.SECONDS_EXPECTED}),
]
