"""What every verb shares: options, output, and how an error ends the command. No logic of its own."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resiliency.errors import TrainmasterError
from resiliency.redact import redact

from ..home import Home

if TYPE_CHECKING:
    from rich.console import Console

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="TRAINMASTER_HOME",
        help="Where the ledger and cluster profiles are.",
        show_default="~/.trainmaster",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Run id, a prefix of it, or its directory; default: the newest."),
]

#: Exit codes of the command line; docs/cli.md lists them, tests keep the two the same.
EXIT_CODES = {
    0: "done",
    1: "failed for a reason named on standard error",
    2: "the command line is wrong",
    3: "the experiment or clusters file is wrong; every fault is listed",
    4: "the scheduler refused, did not answer, or the answer to a submission was lost",
    5: "a file cannot be read or written (disk full, permissions)",
    6: "the ledger cannot be used (locked, read-only, written by a newer version, corrupt)",
    7: "no such run, stage, attempt or cluster",
    8: "another command holds the lock; nothing was changed",
    10: "submit --wait, status --exit-code: the run stopped or was cancelled",
    11: "status --exit-code: the run is not finished",
    130: "interrupted; a run that was submitted goes on",
}


def home_of(path: Path | None) -> Home:
    return Home.at(path)


def console(*, stderr: bool = False) -> Console:
    """A console that is plain where the output is not a terminal."""
    from rich.console import Console

    # Off a terminal rich would wrap at 80 columns and break what scripts and logs look for.
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if stream.isatty() else 160)


def emit(data: Any) -> None:
    """Print JSON, one document, credentials redacted."""
    sys.stdout.write(redact(json.dumps(data, indent=2, default=str)) + "\n")


def say(text: str = "", *, stderr: bool = False) -> None:
    """Print a plain line, credentials redacted."""
    print(redact(text), file=sys.stderr if stderr else sys.stdout, flush=True)


def cell(text: object) -> str:
    """Text for a table's cell: credentials redacted, and no part of it read as markup."""
    from rich.markup import escape

    return escape(redact(str(text)))


def note(text: str) -> None:
    """A remark that is not the command's result."""
    say(text, stderr=True)


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
    """Turn the error family into one message and its exit code."""
    try:
        yield
    except TrainmasterError as error:
        if getattr(error, "faults", ()):
            from ..spec.errors import render

            for line in render(error.faults):  # type: ignore[attr-defined]
                say(line, stderr=True)
        say(f"error: {error}", stderr=True)
        raise typer.Exit(error.exit_code) from error
    except BrokenPipeError:
        # `… | head` closed the pipe: not an error, and nobody reads a message about it.
        sys.stderr.close()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        say("interrupted", stderr=True)
        raise typer.Exit(130) from None
