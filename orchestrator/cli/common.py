"""What every verb shares: output, exit codes, and how an error ends the command. No logic of its own.

Loads nothing that ``--help`` does without.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.exceptions import Abort, ClickException, Exit

from resiliency.errors import TrainmasterError

if TYPE_CHECKING:
    from rich.console import Console

    from ..home import Home

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
    from ..home import Home

    return Home.at(path)


def refreshed(home: Home) -> list[str]:
    """Bring unfinished runs forward, as `tick` does; the problems met. Costs nothing where there are none."""
    if not home.active_run_dirs():
        return []
    from ..session import Session

    session = Session(home)
    return session.reconcile(session.active(), lock_wait_s=2.0).problems


def console(*, stderr: bool = False) -> Console:
    """A console that is plain where the output is not a terminal."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end with 1; errors_shown knows that nothing is wrong

    # Off a terminal rich would wrap at 80 columns and break what scripts and logs look for.
    stream = sys.stderr if stderr else sys.stdout
    return Plain(stderr=stderr, highlight=False, soft_wrap=True, width=None if stream.isatty() else 160)


def emit(data: Any) -> None:
    """Print JSON, one document, credentials redacted."""
    import json

    from resiliency.redact import redact

    sys.stdout.write(redact(json.dumps(data, indent=2, default=str)) + "\n")


def say(text: str = "", *, stderr: bool = False) -> None:
    """Print a plain line, credentials redacted."""
    from resiliency.redact import redact

    print(redact(text), file=sys.stderr if stderr else sys.stdout, flush=True)


def cell(text: object) -> str:
    """Text for a table's cell: credentials redacted, and no part of it read as markup."""
    from rich.markup import escape

    from resiliency.redact import redact

    return escape(redact(str(text)))


def note(text: str) -> None:
    """A remark that is not the command's result."""
    say(text, stderr=True)


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
    """Turn whatever ends a command into a message and an exit code."""
    try:
        yield
    except (ClickException, Exit, Abort):
        raise  # the verb has chosen its exit code, or click has a message about the command line
    except TrainmasterError as error:
        if getattr(error, "faults", ()):
            from ..spec.errors import render

            for line in render(error.faults):  # type: ignore[attr-defined]
                say(line, stderr=True)
        say(f"error: {error}", stderr=True)
        raise Exit(error.exit_code) from error
    except BrokenPipeError:
        # `… | head` closed the pipe: not an error, and nobody reads a message about it.
        sys.stderr.close()
        raise Exit(0) from None
    except KeyboardInterrupt:
        say("interrupted", stderr=True)
        raise Exit(130) from None
    except Exception as error:
        import traceback

        # Lines of code only, no values: local variables may hold what nobody should read.
        say("".join(traceback.format_exception(error)).rstrip(), stderr=True)
        first = (str(error).splitlines() or [""])[0]
        say(f"internal error: {type(error).__name__}: {first}", stderr=True)
        raise Exit(1) from error
