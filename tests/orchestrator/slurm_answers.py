"""A Runner that answers from a table: what the tests of the Slurm backend share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resiliency.edges import Completed

DATA = Path(__file__).parent / "data" / "slurm"
Reply = Callable[[Sequence[str]], tuple[int | None, str, str]]


def recorded(path: Path) -> str:
    """A recorded answer as SystemRunner would hand it over."""
    text = path.read_bytes().decode(errors="replace")
    return text.replace("␟", "\x1f").replace("␞", "\x1e")


def row(*fields: object, sep: str = "\x1f") -> str:
    return sep.join(str(f) for f in fields)


def queue_row(
    job_id: int | str, state: str = "RUNNING", *, restart: int = 0, name: str = "n",
    submitted: int = 1000, reason: str = "None", comment: str = "",
) -> str:  # fmt: skip
    nodes = "a1" if state == "RUNNING" else ""
    times = (submitted, 1001, 2000)
    return row(job_id, restart, state, 0, *times, nodes, reason, name, comment, job_id) + "\x1e\n"


def accounting_row(
    job_id: int | str, state: str = "COMPLETED", *, name: str = "n", submitted: int = 1000,
    code: str = "0:0",
) -> str:  # fmt: skip
    end = "Unknown" if state in ("RUNNING", "PENDING") else submitted + 10
    return row(job_id, state, code, submitted, submitted + 1, end, "a1", "None", name) + "\x1f\n"


@dataclass
class Answers:
    """``replies``: by command (``sbatch``, ``scontrol ping`` …); what has none is not installed."""

    replies: dict[str, Reply | tuple[int | None, str, str]] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)
    died_with_parent: list[bool] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        die_with_parent: bool = False,
    ) -> Completed:
        self.calls.append(list(argv))
        self.envs.append(env or {})
        self.died_with_parent.append(die_with_parent)
        words = [w for w in argv if not w.startswith("-")]
        reply = self.replies.get(" ".join(words[:2])) or self.replies.get(argv[0])
        if reply is None:
            return Completed(tuple(argv), 127, "", f"{argv[0]}: command not found", 0.0)
        code, out, err = reply(argv) if callable(reply) else reply
        return Completed(tuple(argv), code, out, err, timeout_s if code is None else 0.1)

    def named(self, command: str) -> list[list[str]]:
        return [argv for argv in self.calls if argv[0] == command]
