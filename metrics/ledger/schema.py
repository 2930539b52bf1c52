"""Tables, indexes and views of schema version 1, as data; what later versions change is beside it.

Times are Unix seconds (REAL); the views give them as ISO 8601 in UTC. Keys are natural, content
depends only on the journals (``tests/metrics/test_rebuild.py``), every name is described in
``docs/ledger.md`` (``tests/metrics/test_docs.py``). Plain SQL that SQLite 3.24 understands, since
login nodes are old. A released version is never edited: add a migration instead.
"""

from __future__ import annotations

from typing import Final

#: "TRMS": tells our files from other SQLite files (``PRAGMA application_id``).
APPLICATION_ID: Final = 0x54524D53

#: The key of everything that belongs to an attempt. The run is part of it because schedulers
#: reuse job ids after a reset.
_ATTEMPT = "run_id TEXT NOT NULL, stage TEXT NOT NULL, attempt_id TEXT NOT NULL"
_OF_ATTEMPT = "FOREIGN KEY (run_id, stage, attempt_id) REFERENCES attempt (run_id, stage, attempt_id)"
_OF_STAGE = "FOREIGN KEY (run_id, stage) REFERENCES stage (run_id, stage)"

TABLES_V1: Final[dict[str, str]] = {
    "run": """
        run_id TEXT PRIMARY KEY, name TEXT, status TEXT NOT NULL, cluster TEXT, user TEXT,
        created_at REAL, finished_at REAL, last_event_at REAL, experiment TEXT, spec_digest TEXT,
        version TEXT, run_dir TEXT NOT NULL""",
    "stage": """
        run_id TEXT NOT NULL REFERENCES run (run_id), stage TEXT NOT NULL,
        ordinal INTEGER NOT NULL, kind TEXT, needs TEXT NOT NULL, status TEXT NOT NULL,
        epoch INTEGER NOT NULL, link INTEGER, links_max INTEGER,
        links_submitted INTEGER NOT NULL, attempts INTEGER NOT NULL,
        attempt_id TEXT, job_id TEXT, state TEXT, nodes TEXT,
        step INTEGER, total_steps INTEGER, loss REAL, tokens INTEGER, section TEXT,
        checkpoint_step INTEGER, last_event_at REAL, completed_at REAL,
        category TEXT, rule TEXT, reason TEXT, results TEXT,
        PRIMARY KEY (run_id, stage)""",
    "submission": f"""
        token TEXT NOT NULL, run_id TEXT NOT NULL, stage TEXT NOT NULL, link INTEGER NOT NULL,
        epoch INTEGER NOT NULL, cluster TEXT, outcome TEXT NOT NULL, job_id TEXT,
        jobs INTEGER NOT NULL, tries INTEGER NOT NULL, first_intent_at REAL, last_intent_at REAL,
        cancelled INTEGER NOT NULL, reason TEXT,
        PRIMARY KEY (run_id, token), {_OF_STAGE}""",
    "attempt": f"""
        {_ATTEMPT}, cluster TEXT NOT NULL, job_id TEXT NOT NULL, restart_count INTEGER NOT NULL,
        token TEXT, link INTEGER NOT NULL, ordinal INTEGER NOT NULL, state TEXT NOT NULL,
        ended INTEGER NOT NULL, gate TEXT, submitted_at REAL, started_at REAL, ended_at REAL,
        supervisor_started_at REAL, supervisor_finished_at REAL, wall_s REAL NOT NULL,
        nodes TEXT, node_count INTEGER, exit_code INTEGER, signal INTEGER, scheduler_reason TEXT,
        drain_reason TEXT, cancelled_by_us INTEGER NOT NULL, duplicate INTEGER NOT NULL,
        resumed_from INTEGER, step INTEGER, checkpoint_step INTEGER, loss REAL, tokens INTEGER,
        section TEXT, last_progress_at REAL, last_event_at REAL, category TEXT, reason TEXT,
        rule TEXT,
        PRIMARY KEY (run_id, stage, attempt_id),
        UNIQUE (cluster, job_id, restart_count, run_id, stage), {_OF_STAGE}""",
    "attempt_node": f"""
        {_ATTEMPT}, node TEXT NOT NULL, first_at REAL, last_at REAL,
        PRIMARY KEY (run_id, stage, attempt_id, node), {_OF_ATTEMPT}""",
    "cycle": f"""
        {_ATTEMPT}, cycle INTEGER NOT NULL, started_at REAL, ended_at REAL, nodes INTEGER NOT NULL,
        exit_code INTEGER, resumed_from INTEGER, checkpoint_step INTEGER, error TEXT,
        PRIMARY KEY (run_id, stage, attempt_id, cycle), {_OF_ATTEMPT}""",
    "interval": f"""
        {_ATTEMPT}, n INTEGER NOT NULL, kind TEXT NOT NULL, start_at REAL NOT NULL, end_at REAL,
        seconds REAL, PRIMARY KEY (run_id, stage, attempt_id, n), {_OF_ATTEMPT}""",
    "verdict": f"""
        {_ATTEMPT}, category TEXT NOT NULL, domain TEXT NOT NULL, role TEXT NOT NULL,
        confidence REAL NOT NULL, node TEXT, rank INTEGER, reason TEXT NOT NULL,
        signature TEXT NOT NULL, evidence TEXT NOT NULL, action TEXT NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id), {_OF_ATTEMPT}""",
    "node_evidence": f"""
        cluster TEXT NOT NULL, node TEXT NOT NULL, at REAL, category TEXT NOT NULL,
        source TEXT NOT NULL, {_ATTEMPT}, detail TEXT,
        PRIMARY KEY (run_id, stage, attempt_id, node, category, source), {_OF_ATTEMPT}""",
    "exclusion": """
        cluster TEXT NOT NULL, node TEXT NOT NULL, since REAL NOT NULL, until REAL, reason TEXT,
        evidence TEXT, run_id TEXT REFERENCES run (run_id),
        PRIMARY KEY (cluster, node, since)""",
    "checkpoint": f"""
        run_id TEXT NOT NULL, stage TEXT NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL,
        attempt_id TEXT, step INTEGER, path TEXT, at REAL NOT NULL, bytes INTEGER, seconds REAL,
        quarantined_at REAL, quarantine_reason TEXT,
        PRIMARY KEY (run_id, writer, seq), {_OF_STAGE}""",
    "evaluation": f"""
        run_id TEXT NOT NULL, stage TEXT NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL,
        metric TEXT NOT NULL, value REAL, at REAL NOT NULL, attempt_id TEXT,
        PRIMARY KEY (run_id, writer, seq, metric), {_OF_STAGE}""",
    # No foreign key: events come first, what they are about is made from them.
    "event": """
        run_id TEXT NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL, ts REAL NOT NULL,
        mono REAL NOT NULL, type TEXT NOT NULL, stage TEXT, attempt_id TEXT, cycle INTEGER,
        node TEXT, rank INTEGER, data TEXT NOT NULL, v INTEGER NOT NULL,
        PRIMARY KEY (run_id, writer, seq)""",
    # Which progress events a fold needs: the others cannot change its answer.
    "progress_head": """
        run_id TEXT NOT NULL, stage TEXT NOT NULL, attempt_id TEXT NOT NULL, what TEXT NOT NULL,
        writer TEXT NOT NULL, seq INTEGER NOT NULL, ts REAL NOT NULL, step INTEGER NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, what)""",
    "journal_file": """
        run_id TEXT NOT NULL, file TEXT NOT NULL, "offset" INTEGER NOT NULL, size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL, tail_crc INTEGER NOT NULL, lines INTEGER NOT NULL,
        problems INTEGER NOT NULL, torn_tail INTEGER NOT NULL,
        PRIMARY KEY (run_id, file)""",
    "journal_problem": """
        run_id TEXT NOT NULL, file TEXT NOT NULL, "offset" INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (run_id, file, "offset", reason)""",
}

#: Clustered by their key: they are large, written in key order and read by it.
_CLUSTERED: Final = frozenset({"event", "progress_head", "journal_file", "journal_problem"})

INDEXES_V1: Final[tuple[str, ...]] = (
    "CREATE INDEX run_created ON run (created_at)",
    "CREATE INDEX run_status ON run (status, created_at)",
    "CREATE INDEX run_name ON run (name, created_at)",
    "CREATE INDEX attempt_order ON attempt (run_id, stage, ordinal)",
    "CREATE INDEX attempt_time ON attempt (started_at)",
    "CREATE INDEX attempt_node_node ON attempt_node (node)",
    "CREATE INDEX node_evidence_node ON node_evidence (cluster, node, at)",
    "CREATE INDEX verdict_category ON verdict (category)",
    # All but progress: what a fold reads, in the fold's order.
    "CREATE INDEX event_facts ON event (run_id, ts, writer, seq) WHERE type <> 'progress'",
    "CREATE INDEX event_type ON event (type, ts) WHERE type <> 'progress'",
)


def _iso(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%SZ', {column}, 'unixepoch') AS {column.split('.')[-1]}"


VIEWS_V1: Final[dict[str, str]] = {
    "runs": f"""
        SELECT run_id, name, status, cluster, user, {_iso("created_at")}, {_iso("finished_at")},
               {_iso("last_event_at")}, run_dir
        FROM run ORDER BY run.created_at DESC""",
    "stages": f"""
        SELECT run_id, stage, kind, status, link, links_max, job_id, state, nodes, step,
               total_steps, loss, {_iso("last_event_at")}, category, reason
        FROM stage ORDER BY run_id, ordinal""",
    "chain": f"""
        SELECT run_id, stage, ordinal, attempt_id, link, state, category, gate,
               {_iso("submitted_at")}, {_iso("started_at")}, {_iso("ended_at")}, wall_s, nodes,
               resumed_from, step, checkpoint_step, loss, exit_code, signal, reason, rule
        FROM attempt ORDER BY run_id, stage, attempt.ordinal""",
    "timeline": f"""
        SELECT run_id, {_iso("ts")}, type, stage, attempt_id, node, data
        FROM event WHERE type <> 'progress' ORDER BY run_id, event.ts, writer, seq""",
    "failures": f"""
        SELECT v.run_id, v.stage, v.attempt_id, v.category, v.domain, v.confidence, v.node,
               v.reason, a.nodes, a.exit_code, a.signal, a.step, {_iso("a.ended_at")}
        FROM verdict v JOIN attempt a USING (run_id, stage, attempt_id)
        WHERE v.category NOT IN ('healthy', 'planned_rollover') ORDER BY a.ended_at DESC""",
}


def statements_v1() -> list[str]:
    """What creates schema version 1, one statement each."""
    tables = [
        f"CREATE TABLE {name} ({columns}){' WITHOUT ROWID' if name in _CLUSTERED else ''}"
        for name, columns in TABLES_V1.items()
    ]
    views = [f"CREATE VIEW {name} AS {select}" for name, select in VIEWS_V1.items()]
    return [*tables, *INDEXES_V1, *views]


#: Made from a run's events at each change, children before parents (the order to delete in).
DERIVED: Final = (
    "interval",
    "outage",
    "cycle",
    "attempt_node",
    "verdict",
    "node_evidence",
    "exclusion",
    "readmission",
    "checkpoint",
    "evaluation",
    "attempt",
    "submission",
    "stage",
)
