"""``ledger import --sacct``: a dump of accounting into runs of their own, through their journals.

One run per cluster, user, job name and working directory. ``tests/orchestrator/importing/test_sacct.py``;
``scripts/bench/bench_import.py`` holds it to 100,000 rows in 10 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metrics.ledger import Ledger
from orchestrator.home import Home
from resiliency import durable
from resiliency.collector import uncollected

from . import chains, jobs, rundir
from .summary import Summary
from .table import Table
from .times import zone_of, zone_words

_BATCH: Final = 200  # runs ingested in one transaction
WRITER: Final = "import-sacct"
#: Column → what cannot be said without it.
_MISSED: Final = (
    ("workdir", "no WorkDir column: jobs of one user and name count as one run"),
    ("user", "no User column: jobs of one name count as one run, whoever submitted them"),
)
_UNSAID: Final = (
    ("exitcode", "exit codes (no ExitCode column)"),
    ("submit", "how long jobs waited, and which row is which requeue (no Submit column)"),
    ("start", "when jobs began (no Start column)"),
    ("end", "when jobs ended (no End column)"),
    ("nodelist", "nodes, so nothing per node (no NodeList column)"),
    ("alloctres", "GPUs of a node, so no GPU-hours (no AllocTRES column)"),
)


@dataclass(frozen=True)
class Options:
    """``zone``: name of the zone of times without one; ``cluster``: where no column names it."""

    zone: str | None = None
    cluster: str | None = None
    dry_run: bool = False


def import_sacct(home: Home, lines: Iterable[str], source: str, options: Options) -> Summary:
    """Bring a dump in. Raises TrainmasterError (no table), UsageError, StorageError, LedgerError."""
    how = jobs.Reading(zone_of(options.zone), options.cluster or "imported")
    table = Table(lines, source)
    with uncollected():
        read = jobs.read(table, how)
        summary = Summary("sacct", source, options.dry_run, table.rows_read)
        if not options.dry_run:
            home.ensure()
            with durable.locked(home.root / "import.lock", what="importing"):
                _bring(home, read, summary, table)
        else:
            _bring(home, read, summary, table)
    summary.left_out += table.faults.counts
    summary.problems += table.faults.lines
    _remarks(summary, table.columns, options)
    return summary


def _bring(home: Home, read: Sequence[jobs.JobRow], summary: Summary, table: Table) -> None:
    ours = _ours(home)
    groups: dict[jobs.Chain, list[jobs.JobRow]] = {}
    for job in read:
        if (job.chain.cluster, job.row.job_id) in ours:
            summary.left_out["rows of jobs that the ledger has from Trainmaster itself"] += 1
            continue
        groups.setdefault(job.chain, []).append(job)
    source = {"source": "sacct", "file": summary.source, "rows": table.rows_read}
    unexplained = together = running = 0
    touched: list[Path] = []
    for chain, own in groups.items():
        name = rundir.run_id(chain.name, "sacct", chain.cluster, chain.user, chain.name, chain.directory)
        run = rundir.open_run(home.default_runs, name)
        added = chains.add(run, chain, own, source)
        summary.runs.append(name)
        summary.attempts += added.attempts
        summary.new += added.new
        summary.events += len(added.said)
        summary.ends += added.ends
        unexplained += added.unexplained
        together += added.together
        running += sum(n for state, n in added.ends.items() if state.startswith("not over"))
        if added.repeated:
            summary.left_out["rows that tell an attempt again, or were followed by a newer one"] += (
                added.repeated
            )
        if added.late:
            summary.left_out["attempts older than one of the same job already known: numbered after it"] += (
                added.late
            )
        if summary.dry_run:
            continue
        if added.said:
            rundir.write(run.path, added.said, writer=WRITER)
            rundir.declare_gpus(run.path, _agreed(own))
        touched.append(run.path)
    ingest(home, touched)
    if unexplained:
        summary.unknown.append(f"why {unexplained} attempts FAILED: their exit code alone does not tell")
    if running:
        summary.unknown.append(f"the end of {running} attempts that were not over: import a later dump")
    if together:
        summary.assumed.append(
            f"{together} attempts ran beside another of their run; they count in its chain"
        )


def _ours(home: Home) -> frozenset[tuple[str, str]]:
    """Cluster and job id of the attempts that the ledger has from Trainmaster's own runs."""
    if not home.ledger.exists():
        return frozenset()
    with Ledger.open(home.ledger, readonly=True) as ledger:
        rows = ledger.rows(
            "SELECT cluster, job_id FROM attempt WHERE substr(run_id, 1, ?) <> ?",
            (len(rundir.PREFIX), rundir.PREFIX),
        )
    return frozenset((row[0], row[1]) for row in rows)


def _agreed(own: Sequence[jobs.JobRow]) -> int | None:
    """GPUs of a node, when all jobs that say so say the same."""
    told = {job.gpus_per_node for job in own if job.gpus_per_node is not None}
    return told.pop() if len(told) == 1 else None


def ingest(home: Home, paths: Sequence[Path]) -> None:
    """Bring the ledger up to date with the runs, many in one transaction."""
    from metrics.ledger.ingest import ingest as ingest_one
    from metrics.ledger.ingest import unchanged

    if not paths:
        return
    with Ledger.open(home.ledger) as ledger:
        for start in range(0, len(paths), _BATCH):
            with ledger.writing() as connection:
                for path in paths[start : start + _BATCH]:
                    if unchanged(connection, path) is None:
                        ingest_one(connection, path)


def _remarks(summary: Summary, columns: frozenset[str], options: Options) -> None:
    summary.assumed.append(f"times without a zone are in {zone_words(options.zone)} (--timezone)")
    if "cluster" not in columns:
        summary.assumed.append(f"all jobs are of cluster {options.cluster or 'imported'} (--cluster)")
    summary.assumed += [words for column, words in _MISSED if column not in columns]
    summary.assumed.append(
        "each requeue has a row of its own (sacct -D); without it only the last run is known"
    )
    summary.unknown.append(
        "progress: steps, checkpoints, lost and repeated work (the jobs' logs may tell: --log)"
    )
    summary.unknown += [words for column, words in _UNSAID if column not in columns]
