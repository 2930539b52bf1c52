"""The ``orchestrator`` command: verbs put together."""

from __future__ import annotations

import typer

from . import (
    cancel,
    clusters,
    doctor,
    init,
    ledger,
    logs,
    plan,
    resume,
    schema,
    status,
    submit,
    tick,
    validate,
    version,
)

app = typer.Typer(
    name="orchestrator",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, secrets among them
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="One experiment file becomes a chain of Slurm jobs, kept going until it is done.\n\n"
    "First steps: `init` writes a starter experiment, `plan` shows what would be "
    "submitted, `submit --wait` runs it, `status` and `logs` say how it goes.",
    rich_markup_mode=None,  # its help loads a Markdown renderer: half of a cold start
)

for module in (
    init,
    validate,
    plan,
    submit,
    status,
    logs,
    cancel,
    resume,
    tick,
    doctor,
    clusters,
    schema,
    version,
):
    app.command(module.__name__.rsplit(".", 1)[1], epilog=module.EXAMPLE)(module.command)
app.add_typer(ledger.app, name="ledger")


def main() -> None:
    """Entry point of the console script and of ``python -m orchestrator``."""
    app()
