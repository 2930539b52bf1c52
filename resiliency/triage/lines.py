"""What a raw log line is: its prefix (rank, node, task), its text, and whether it can be evidence at all.

Lines that only look like faults are told apart here, for all signatures at once: configuration
print-outs, source lines inside tracebacks, shell tracing, advice, things that were tried again.
``tests/resiliency/triage/test_reading.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_LINE = 8192  # of a longer line only this much around the match is looked at

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07")
_PREFIXES = (
    re.compile(r"\[rank[ ]?(?P<rank>\d{1,6})\]:?[ ]?(?!\[E)"),
    re.compile(r"\[(?:rank|Rank|RANK)[ =:]?(?P<rank>\d{1,6})\][:]?[ ]?"),
    re.compile(
        r"\[(?P<role>[a-zA-Z_]{2,20})(?P<local>\d{1,3})\]:[ ]?"
    ),  # torchrun --tee: role and local rank
    re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err)>:[ ]?"),  # mpirun --tag-output
    re.compile(r"(?P<task>\d{1,6}):[ ]?(?!\d\d:)"),  # srun --label
    re.compile(
        r"\((?P<actor>[A-Za-z_][\w.:<>-]{0,60}) pid=(?P<pid>\d+)(?:, ip=(?P<ip>[0-9a-fA-F.:]+))?\)[ ]?"
    ),
    re.compile(r"(?P<node>[A-Za-z][A-Za-z0-9.-]{0,62}):[ ]"),  # pdsh, srun with node names
    re.compile(  # vLLM's logger, on each line of a traceback too
        r"(?P<level>INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w.:/ -]{1,80}\] ?)?"
    ),
    re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)[:]?[ ](?=\[|\d+:|\()"),  # container runtimes
)
_NOT_NODES = frozenset(
    [
        "srun",
        "slurmstepd",
        "slurmd",
        "sbatch",
        "salloc",
        "scancel",
        "error",
        "warning",
        "info",
        "debug",
        "fatal",
        "critical",
        "note",
        "hint",
        "python",
        "bash",
        "sh",
        "torchrun",
        "pyxis",
        "enroot",
        "nvidia-container-cli",
        "frame",
        "caused-by",
        "last",
        "traceback",
        "kernel",
        "lustre",
        "lustreerror",
        "nfs",
        "exception",
        "runtimeerror",
        "valueerror",
        "prolog",
        "epilog",
        "mpirun",
        "prterun",
        "prte",
        "orted",
        "ray",
        "vllm",
    ]
)

_SOURCE_FRAME = re.compile(r'^\s*(?:File "[^"]+", line \d+|\^+|~+\^*~*$)')
_CONFIG = re.compile(
    r"""^\s*(?:
        [\w./-]+[ ]\.{2,}[ ]                       # Megatron's argument table
      | (?:export[ ]|set[ ]|declare[ ]-x[ ])?[A-Z][A-Z0-9_]{2,}=            # environment dumps
      | \+{1,4}[ ]                                 # set -x
      | --?[\w-]+(?:[ =]|$)                        # an option of a command line
      | (?!kernel)(?![\w.]*(?:Error|Exception|Interrupt|Exit)\b)["']?[\w.-]+["']?\s*:\s*
        (?:["'{]|\[["'\]\d]|(?:true|false|null|None|True|False|-?\d[\d.e+-]*)\s*,?\s*$)
      | \#(?!\d)                                   # comments of an echoed script
    )""",
    re.X,
)
_RETRIED = re.compile(
    r"\bretrying\b|\bwill (?:be )?retr(?:y|ied)\b|\bretry(?:ing)? (?:in|after) \d|\(retry \d+|"
    r"\bretry \d+ ?(?:/|of) ?\d+|\battempt \d+ ?(?:/|of) ?\d+|\btrying again\b|\brecovered\b|"
    r"\bfalling back to\b|\bignoring\b|\bskipp(?:ed|ing)\b|\bsucceeded on retry\b",
    re.I,
)
_GAVE_UP = re.compile(
    r"\bgiv(?:e|ing) up\b|\bexceeded\b|\bexhausted\b|\bno more retries\b|\bfailed after\b|\baborting\b", re.I
)
_ADVICE = re.compile(
    r"^\s*(?:hint|note|tip|advice|see also|for more information|to (?:fix|avoid|debug|enable|resolve)\b|"
    r"if (?:you|this|reserved|the)\b|try (?:setting|to|increasing|reducing|running)\b|"
    r"please (?:try|check|make sure|refer|see|consider|report|raise|increase)\b|consider\b|"
    r"this (?:may|might|could) (?:be|indicate|happen)\b|for debugging consider\b|"
    r"(?:possible|common|likely) (?:causes?|reasons?|solutions?)\b|make sure\b|"
    r"\d+\.\s+(?:check|make|try|ensure|verify)\b|[-*]\s+(?:check|make sure|try|ensure|verify)\b)",
    re.I,
)


@dataclass(frozen=True)
class Prefix:
    """Who wrote a line, as far as its prefix says; ``length`` characters belong to the prefix."""

    length: int = 0
    key: str = ""
    rank: int | None = None
    task: int | None = None
    local: int | None = None
    node: str | None = None
    pid: int | None = None
    ip: str | None = None

    @property
    def writer(self) -> tuple[object, ...]:
        """Equal for lines of one process, whatever times stand in their prefixes."""
        return (self.rank, self.task, self.local, self.node, self.pid)


NO_PREFIX = Prefix()


def plain(text: str) -> str:
    """Without colour codes and NULs."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\x00", "") if "\x00" in text else text


def split_prefix(text: str, nodes: Collection[str] = ()) -> Prefix:
    """Take up to five prefixes off a line. ``nodes``: names known to be nodes of the job."""
    at = 0
    found: dict[str, str] = {}
    for _ in range(5):
        for pattern in _PREFIXES:
            match = pattern.match(text, at)
            if match is None or match.end() == at:
                continue
            got = {k: v for k, v in match.groupdict().items() if v is not None}
            if "node" in got and not _is_node(got["node"], nodes):
                continue
            if "role" in got and got["role"].lower() in ("rank", "gpu"):
                continue
            found.update(got)
            at = match.end()
            break
        else:
            break
    if at == 0:
        return NO_PREFIX

    def number(name: str) -> int | None:
        return int(found[name]) if name in found else None

    return Prefix(
        at,
        text[:at],
        number("rank"),
        number("task"),
        number("local"),
        found.get("node"),
        number("pid"),
        found.get("ip"),
    )


def _is_node(name: str, nodes: Collection[str]) -> bool:
    if name in nodes:
        return True
    if nodes or name.lower() in _NOT_NODES:
        return False
    return (
        bool(re.search(r"\d", name))
        and bool(re.search(r"[-.]|\d{2,}|^[a-z]+\d+$", name))
        and not name.startswith(("mlx", "cuda", "nvme", "eth", "ib", "bond"))
    )


def is_source_line(text: str, previous: str | None) -> bool:
    """A line of source code (or a frame) that a traceback quotes."""
    if _SOURCE_FRAME.match(text):
        return True
    return text[:4] == "    " and previous is not None and bool(_SOURCE_FRAME.match(previous))


def is_config(text: str) -> bool:
    return bool(_CONFIG.match(text))


def is_retried(text: str) -> bool:
    """The line says itself that it is not the end: tried again, skipped, fallen back."""
    return bool(_RETRIED.search(text)) and not _GAVE_UP.search(text)


def is_advice(text: str) -> bool:
    return bool(_ADVICE.match(text))
