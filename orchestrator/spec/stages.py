"""The kinds of stage and their own fields. ``docs/stages.md`` has what the programs make of them.

The bounds agree with ``models/settings.py``, which reads the same sections once more in the
allocation (``tests/orchestrator/test_spec_stages.py`` compares the two).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from .argv import Argv
from .fields import (
    EnvName,
    EnvValue,
    Flag,
    Model,
    NotNegative,
    Number,
    Positive,
    Seconds,
    Text,
    WrongField,
    listed,
)
from .resources import Chain, Environment, Recovery, Resources, ShortChain

#: Kinds that run as one process: nodes and ranks of ``defaults`` are not theirs.
ONE_PROCESS = ("text", "eval")
#: Kinds that are planned and that this version does not run.
LATER_KINDS = ("sft", "rl", "trajectories", "reward", "convert")

StageName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]


class Role(Model):
    """A command beside the stage's own, with restarts of its own."""

    run: Argv = Field(description="The command, as in a command stage.")
    nodes: Literal["first", "all"] = Field(default="first", description="The first node, or every one.")
    replicas: Annotated[Positive, Field(le=256)] = Field(default=1, description="Copies on each of them.")
    essential: Flag = Field(
        default=False, description="true: the stage cannot do without it once its restarts are used up."
    )
    restarts: NotNegative = Field(default=10, description="Restarts of a copy in one allocation.")
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Variables of this role, besides the stage's. Never secrets."
    )


class StageBase(Environment):
    """What every stage has."""

    needs: listed(StageName) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Stages that must be complete first: a name or a list."
    )
    resources: Resources = Field(default_factory=Resources)
    chain: Chain = Field(default_factory=Chain)
    recovery: Recovery = Field(default_factory=Recovery)
    roles: dict[StageName, Role] = Field(
        default_factory=dict,
        description="Further processes beside the stage's own, by name. They outlive restarts "
        "in the allocation.",
    )


class Split(Model):
    """Shares of the text, by bytes; train takes the rest."""

    valid: Annotated[Number, Field(ge=0, lt=1)] = 0.02
    test: Annotated[Number, Field(ge=0, lt=1)] = 0.02

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Split:
        if self.valid + self.test >= 1:
            raise WrongField("test", "valid and test together leave nothing to train on")
        return self


class TextStage(StageBase):
    """Files → tokenizer and indexed dataset."""

    kind: Literal["text"]
    chain: ShortChain = Field(default_factory=ShortChain)
    inputs: listed(Text) | None = Field(  # type: ignore[valid-type]
        None,
        description="Files, directories or globs, relative to the experiment file. "
        "null: the sources of Python's standard library.",
    )
    include: listed(Text) | None = Field(  # type: ignore[valid-type]
        None, description="Names of files to take from directories, e.g. '*.txt'. null: usual text files."
    )
    exclude: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Paths to leave out, e.g. '*/old/*'."
    )
    vocab_size: Annotated[Positive, Field(ge=257, le=1_000_000)] = Field(
        default=1024, description="Entries of the byte-level BPE."
    )
    max_bytes: Positive | None = Field(default=None, description="Bytes of text to use at most. null: all.")
    split: Split = Field(default_factory=Split)
    seed: NotNegative = Field(default=1234, description="Decides which document is in which split.")


class Parallel(Model):
    """How the ranks share the model; 1 means not split. What is left over is data-parallel."""

    tensor: Positive = Field(default=1, description="Tensor parallelism.")
    pipeline: Positive = Field(default=1, description="Pipeline parallelism.")
    context: Positive = Field(default=1, description="Context parallelism.")
    expert: Positive = Field(default=1, description="Expert parallelism.")
    virtual_pipeline: Positive = Field(default=1, description="Model chunks of a pipeline rank.")
    sequence: Flag = Field(default=False, description="Sequence parallelism (needs tensor over 1).")
    distributed_optimizer: Flag = Field(default=False, description="Optimizer state split over replicas.")


class Train(Model):
    """The training run. Steps are optimizer steps; the learning rate decays by cosine."""

    steps: Positive = Field(description="Optimizer steps in total.")
    global_batch_size: Positive = Field(default=8, description="Sequences of one step, over all ranks.")
    micro_batch_size: Positive = Field(default=1, description="Sequences of one forward pass of a rank.")
    seq_length: Annotated[Positive, Field(ge=2)] = Field(default=256, description="Tokens of a sequence.")
    lr: Annotated[Number, Field(gt=0)] = Field(default=3e-4, description="Highest learning rate.")
    min_lr: Annotated[Number, Field(ge=0)] = Field(default=0.0, description="Learning rate at the end.")
    warmup_steps: NotNegative = Field(default=0, description="Steps of linear warm-up.")
    weight_decay: Annotated[Number, Field(ge=0)] = 0.1
    clip_grad: Annotated[Number, Field(ge=0)] = Field(default=1.0, description="Norm to clip at; 0: none.")
    beta1: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[Number, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[Number, Field(gt=0)] = 1e-8
    seed: NotNegative = 1234
    precision: Literal["fp32", "bf16"] = "bf16"
    log_interval: Positive = Field(default=10, description="Steps between two lines of the log.")
    threads: Positive | None = Field(default=None, description="CPU threads of a rank. null: its share.")

    @model_validator(mode="after")
    def _fits_together(self) -> Train:
        if self.warmup_steps >= self.steps:
            message = f"{self.warmup_steps} is not under train.steps ({self.steps})"
            raise WrongField("warmup_steps", message)
        if self.min_lr > self.lr:
            raise WrongField("min_lr", f"{self.min_lr:g} is over train.lr ({self.lr:g})")
        return self


def _interval(value: Any) -> Any:
    return None if value == "auto" else value


class Checkpoint(Model):
    """When to save and how many to keep."""

    interval: Annotated[Positive | None, BeforeValidator(_interval)] = Field(
        default=None,
        description="Steps between two saves. auto or null: by what one costs and how often things fail.",
    )
    seconds: Annotated[Seconds, Field(gt=0)] = Field(
        default=600, description="For auto: seconds between saves at first, until their cost is known."
    )
    keep: Positive = Field(default=3, description="Checkpoints to keep; the last two good ones always stay.")
    async_: Flag = Field(
        default=True, alias="async", description="Write while training goes on; a step waits for a copy only."
    )
    local_interval: Positive | None = Field(
        default=None,
        description="Steps between copies in the nodes' memory, for restarts in the allocation. null: none.",
    )
    replicas: Annotated[NotNegative, Field(le=1)] = Field(
        default=1, description="Copies of each node's part on another node (with local_interval)."
    )


Launcher = Literal["auto", "ft_launcher", "torchrun", "none"]


class PretrainStage(StageBase):
    """Trains a GPT on a text stage's dataset."""

    kind: Literal["pretrain"]
    data: StageName | None = Field(
        default=None, description="The text stage to train on. null: the one text stage among needs."
    )
    model: dict[str, Any] = Field(
        description="preset and any field of Megatron-Core's TransformerConfig.",
    )
    parallel: Parallel = Field(default_factory=Parallel)
    train: Train
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    launcher: Launcher = Field(default="auto", description="auto: ft_launcher if installed, else torchrun.")


class EvalStage(StageBase):
    """Held-out loss of a trained model, in bits per byte, against simple baselines."""

    kind: Literal["eval"]
    chain: ShortChain = Field(default_factory=ShortChain)
    model: StageName | None = Field(
        default=None, description="The pretrain stage to evaluate. null: the one pretrain stage among needs."
    )
    data: StageName | None = Field(
        default=None, description="The text stage to evaluate on. null: the one the model was trained on."
    )
    split: Literal["valid", "test"] = Field(default="test", description="Which held-out part of the text.")
    stride: Positive | None = Field(
        default=None, description="Tokens a window moves on. null: half of the model's seq_length."
    )
    threads: Positive | None = Field(default=None, description="CPU threads. null: the cores of the job.")


_SIGNALS = ("TERM", "INT", "USR1", "USR2", "HUP", "QUIT")


def _signal(value: str) -> str:
    name = value.upper().removeprefix("SIG")
    if name not in (*_SIGNALS, "NONE"):
        raise ValueError(f"{value!r} is unknown; expected {', '.join(_SIGNALS)} or none")
    return name.lower() if name == "NONE" else name


class Progress(Model):
    """Where the step a command is at can be read: one of the four."""

    regex: Text | None = Field(
        default=None, description="Matched against each line of output; its group `step` (and `loss`) counts."
    )
    format: Literal["megatron-log", "megatron-checkpoint"] | None = Field(
        default=None, description="Lines of a known program, or its checkpoints in {checkpoint_dir}."
    )
    file: Text | None = Field(default=None, description="A file with a number in it.")
    checkpoint: Text | None = Field(
        default=None,
        description="A directory of Megatron checkpoints: its latest_checkpointed_iteration.txt is read.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Progress:
        ways = (self.regex, self.file, self.format, self.checkpoint)
        if sum(given is not None for given in ways) != 1:
            raise ValueError("needs one of regex, file, checkpoint and format")
        if self.regex is not None:
            try:
                groups = re.compile(self.regex).groupindex
            except (re.error, OverflowError, RecursionError) as error:
                raise WrongField("regex", f"is not a regular expression: {error}") from error
            if "step" not in groups:
                message = r"has no group named step; expected such as 'step (?P<step>\d+)'"
                raise WrongField("regex", message)
        return self


def _progress(value: Any) -> Any:
    """One text alone is a format, ``file:PATH`` or a regular expression."""
    if not isinstance(value, str):
        return value
    if value in ("megatron-log", "megatron-checkpoint"):
        return {"format": value}
    if value.startswith("file:"):
        return {"file": value.removeprefix("file:")}
    if value.isidentifier() or set(value) <= set("abcdefghijklmnopqrstuvwxyz-_"):
        expected = "megatron-log, megatron-checkpoint, {regex: …}, {file: …} or {checkpoint: …}"
        raise ValueError(f"{value!r} is unknown; expected {expected}")
    return {"regex": value}


class CommandStage(StageBase):
    """Anyone's own command, in the same chain, recovery and ledger."""

    kind: Literal["command"]
    run: Argv = Field(
        description="The command: one text (split into words, never given to a shell) or a list. "
        "{stage_dir}, {artifact_dir}, {checkpoint_dir}, {run_dir}, {link} and {input:NAME} are filled in."
    )
    workdir: Text | None = Field(
        default=None, description="Directory to run in. null: the directory of the experiment file."
    )
    progress: Annotated[Progress | None, BeforeValidator(_progress)] = Field(
        default=None,
        description="Where to read steps: megatron-log, megatron-checkpoint, {regex: …}, {file: …} or "
        "{checkpoint: …}. "
        "null: only from the client in the program.",
    )
    stop_signal: Annotated[str, AfterValidator(_signal)] = Field(
        default="TERM", description="Signal that tells the command to save and end. none: only the stop file."
    )
    grace: Seconds = Field(default=60, description="Seconds the command has to end after that signal.")
    launcher: Launcher = Field(default="none", description="none: started once per rank, as it is.")
    warm: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list,
        description="Python modules to import ahead on each node, so that restarts begin at once "
        "(`python script.py …` and `python -m …` under a launcher).",
    )

    WORDS: ClassVar[tuple[str, ...]] = (
        "stage_dir",
        "artifact_dir",
        "checkpoint_dir",
        "run_dir",
        "link",
    )


STAGES: dict[str, type[StageBase]] = {
    "text": TextStage,
    "pretrain": PretrainStage,
    "eval": EvalStage,
    "command": CommandStage,
}
