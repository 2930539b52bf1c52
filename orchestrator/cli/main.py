"""The ``orchestrator`` command: verbs put together, none of them loaded."""

from __future__ import annotations

from .commands import LazyGroup

#: Verb, in the order of ``--help``, and the first line of its own help (tests keep the two the same).
#: Each is a module of this package.
VERBS = {
    "init": "Write a starter experiment to edit; without a name, list what there is.",
    "validate": "Check an experiment file: every fault at once, with file, line and key.",
    "plan": "Show stages, chains, node-hours and (with --scripts) the scripts. Submits and writes nothing.",
    "submit": "Submit an experiment: check it, make a run, queue the first links of every stage.",
    "status": "Show runs, or one run with its stages, attempts, causes and figures.",
    "report": "Show where the time of runs went: ETTR, goodput, failures, each with its window and bounds.",
    "compare": "Compare two runs: every figure and the shares of time, with their difference.",
    "logs": "Print the logs of a run: per link the supervisor's, per node the roles'. "
    "Credentials are redacted.",
    "triage": "Find the root cause of a dead or standing job, and say what to do. "
    "`triage X` is short for `triage show X`.",
    "cancel": "Cancel a run: queued and running jobs end, nothing further is submitted.",
    "resume": "Go on: stages that stopped, were held or cancelled get fresh budgets and new links.",
    "drill": "Rehearse failures: run an experiment, harm it on purpose, and tell how it came through.",
    "tick": "Observe the scheduler, record what changed, and submit, cancel or stop what follows from it.",
    "doctor": "Check this machine and cluster: partitions, limits, preemption, accounting, file systems, "
    "versions.",
    "clusters": "List cluster profiles: from clusters.yaml and the built-in ones, "
    "and which one `auto` means.",
    "schema": "Print the JSON Schema of the experiment file.",
    "version": "Print the version of Trainmaster, Python and the packages it drives.",
    "nodes": "Nodes that are kept out of runs: list, rank, explain, exclude, readmit.",
    "ledger": "The ledger: check it, rebuild it from the journals, export it.",
}

app = LazyGroup(
    name="orchestrator",
    package="orchestrator.cli",
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="One experiment file becomes a chain of Slurm jobs, kept going until it is done.\n\n"
    "First steps: `init` writes a starter experiment, `plan` shows what would be "
    "submitted, `submit --wait` runs it, `status` and `logs` say how it goes.",
    epilog="Example: python -m orchestrator submit examples/quickstart.yaml --wait",
)


def main() -> None:
    """Entry point of the console script and of ``python -m orchestrator``."""
    app()
