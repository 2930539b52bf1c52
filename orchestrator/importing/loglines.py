"""One line of a training log to what it says: Megatron-LM, torchtitan, NeMo. Pure.

Sources of the formats: the programs' own logging calls (Megatron-LM ``training_log`` and
``save_checkpoint``; torchtitan's metrics processor and checkpoint manager; NeMo's progress printer and
Lightning's bar). ``tests/orchestrator/importing/test_loglines.py`` has lines of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, Literal

from .times import seconds

Kind = Literal["step", "saving", "saved", "loaded", "start"]


@dataclass(frozen=True)
class Line:
    """``kind``: a step was done, a save began, a save is complete, a checkpoint was loaded, training starts.

    ``step`` None: of a save, the step done last. ``total``: steps planned. ``each_s``: seconds of a step.
    """

    kind: Kind
    program: str
    step: int | None = None
    total: int | None = None
    loss: float | str | None = None
    tokens: int | None = None
    each_s: float | None = None
    tflops: float | None = None
    took_s: float | None = None
    path: str = ""


_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP: Final = re.compile(r"(?<!\d)(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
_JOB: Final = re.compile(r"SLURM_JOB_?ID\b['\"]?\s*[=:]\s*['\"]?(\d+)", re.IGNORECASE)
_MEGATRON: Final = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+|infinity)\s*\|(.*)")
_TITAN: Final = re.compile(r"\bstep:\s*(\d+)\s+loss:\s*(\S+)(.*)")
_NEMO: Final = re.compile(r"\bTraining epoch \d+, iteration (\d+)(?:/(\d+))?\s*\|(.*)")
_BAR: Final = re.compile(r"\bEpoch \d+:.*\breduced_train_loss=([^,\]\s]+)(.*)")
_SAVED: Final = re.compile(
    r"successfully saved checkpoint from iteration\s+(\d+)(?: to (\S+))?", re.IGNORECASE
)
_SAVING: Final = re.compile(r"\bsaving checkpoint at iteration\s+(\d+) to (\S+)")
_LOADED: Final = re.compile(
    r"successfully loaded checkpoint from (\S+).*?at iteration\s+(\d+)", re.IGNORECASE
)
_NEMO_SAVE: Final = re.compile(
    r"Global Checkpoint Save\s*:\s*Rank:\s*0\s*:\s*Iteration:\s*(\d+).*?Save duration:\s*([\d.]+)s"
)
_TITAN_SAVED: Final = re.compile(r"Finished saving the checkpoint in ([\d.]+) seconds")
_TITAN_SAVING: Final = re.compile(r"Saving (?:the|a full) checkpoint")
_TITAN_START: Final = re.compile(r"Training starts at step (\d+)")
_BEFORE: Final = re.compile(r"\[before the start of training step\]")


def job_of(line: str) -> str | None:
    """The job that a line names."""
    found = _JOB.search(line)
    return found[1] if found else None


def stamp_of(line: str, zone: tzinfo | None) -> float | None:
    """The time at the front of a line, local to ``zone``; None: it bears none."""
    found = _STAMP.search(line[:120])
    if found is None:
        return None
    fraction = (found[3] or "0").ljust(6, "0")
    try:
        return seconds(f"{found[1]}T{found[2]}.{fraction}", zone)
    except ValueError:
        return None


def read(line: str) -> Line | None:
    """What a line says of training; None: nothing."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "teration" in line or "heckpoint" in line:
        found = _megatron(line) or _saves(line)
        if found is not None:
            return found
    if "step:" in line and (match := _TITAN.search(line)):
        rest = _pairs(match[3], r"(\w+):\s*(\S+)")
        return Line(
            "step", "torchtitan", int(match[1]), loss=_loss(match[2]), tflops=_number(rest.get("tflops"))
        )
    if "starts at step" in line and (match := _TITAN_START.search(line)):
        return Line("start", "torchtitan", max(0, int(match[1]) - 1))
    if "reduced_train_loss=" in line and (match := _BAR.search(line)):
        rest = _pairs(match[2], r"(\w+)=([^,\]\s]+)")
        step = _number(rest.get("global_step"))
        if step is not None:
            return Line("step", "NeMo", int(step) + 1, loss=_loss(match[1]))
    if "before the start" in line and _BEFORE.search(line):
        return Line("start", "Megatron-LM")
    return None


def _megatron(line: str) -> Line | None:
    match = _MEGATRON.search(line)
    if match and "Training epoch" not in line:
        told = _pairs(match[3], r"([^|:]+?(?:\([^)|]*\))?)\s*:\s*([^|]+)")
        each = _number(told.get("elapsed time per iteration (ms)"))
        tokens = _number(told.get("consumed tokens"))
        flops = told.get("throughput per GPU (TFLOP/s/GPU)")
        return Line(
            "step",
            "Megatron-LM",
            int(match[1]),
            int(match[2]) if match[2].isdecimal() else None,
            _loss(told.get("lm loss")),
            int(tokens) if tokens is not None else None,
            None if each is None else each / 1000,
            _number(flops),
        )
    match = _NEMO.search(line)
    if match is None:
        return None
    told = _pairs(match[3], r"([^|:]+?)\s*:\s*([^|]+)")
    step = _number(told.get("global_step"))
    last = int(match[1]) if step is None else int(step)
    # It counts from 0: with global_step 99 a hundred steps are done.
    total = int(match[2]) + 1 if match[2] and step == int(match[1]) else None
    loss = told.get("reduced_train_loss")
    return Line(
        "step", "NeMo", last + 1, total, _loss(loss), None, _number(told.get("train_step_timing in s"))
    )


def _saves(line: str) -> Line | None:
    if match := _SAVED.search(line):
        return Line("saved", "Megatron-LM", int(match[1]), path=match[2] or "")
    if match := _LOADED.search(line):
        return Line("loaded", "Megatron-LM", int(match[2]), path=match[1])
    if match := _SAVING.search(line):
        return Line("saving", "Megatron-LM", int(match[1]), path=match[2])
    if match := _NEMO_SAVE.search(line):
        return Line("saved", "NeMo", int(match[1]) + 1, took_s=_number(match[2]))
    if match := _TITAN_SAVED.search(line):
        return Line("saved", "torchtitan", took_s=_number(match[1]))
    if _TITAN_SAVING.search(line):
        return Line("saving", "torchtitan")
    return None


def _pairs(text: str, pattern: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, value in re.findall(pattern, text)}


def _number(text: str | None) -> float | None:
    try:
        found = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return found if found == found and abs(found) < 2**62 else None


def _loss(text: str | None) -> float | str | None:
    """A number, or ``nan`` and the like as text, as journals have it."""
    if text is None:
        return None
    found = _number(text)
    if found is not None:
        return found
    return text.strip().lower() if text.strip().lower() in ("nan", "inf", "-inf") else None
