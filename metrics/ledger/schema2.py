"""Schema version 2: cycles with their causes, verdicts per cycle, and what is known of nodes.

The tables that change were empty or are made anew from the event table, so they are replaced; every run
is looked at again at its next ingest. A released version is never edited. ``docs/ledger.md``.
"""

from __future__ import annotations

from typing import Final

from .schema import _ATTEMPT, _OF_ATTEMPT, _iso

_WORD: Final = "run_id TEXT NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL"

TABLES: Final[dict[str, str]] = {
    "cycle": f"""
        {_ATTEMPT}, cycle INTEGER NOT NULL, started_at REAL, ended_at REAL, nodes INTEGER NOT NULL,
        node_names TEXT, spares INTEGER, exit_code INTEGER, resumed_from INTEGER,
        checkpoint_step INTEGER, step INTEGER, error TEXT, incident TEXT, onset_at REAL,
        detected_at REAL, category TEXT, signature TEXT, reason TEXT, node TEXT, rank INTEGER,
        continued INTEGER NOT NULL, action TEXT, rule TEXT, shadow INTEGER NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, cycle), {_OF_ATTEMPT}""",
    "verdict": f"""
        {_ATTEMPT}, cycle INTEGER NOT NULL, category TEXT NOT NULL, domain TEXT NOT NULL,
        role TEXT NOT NULL, confidence REAL NOT NULL, node TEXT, rank INTEGER, reason TEXT NOT NULL,
        signature TEXT NOT NULL, evidence TEXT NOT NULL, action TEXT NOT NULL, source TEXT NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, cycle), {_OF_ATTEMPT}""",
    "node_evidence": f"""
        cluster TEXT NOT NULL, node TEXT NOT NULL, at REAL NOT NULL, category TEXT NOT NULL,
        source TEXT NOT NULL, {_ATTEMPT}, cycle INTEGER NOT NULL, job_id TEXT NOT NULL,
        nodes INTEGER NOT NULL, signature TEXT NOT NULL, proof INTEGER NOT NULL,
        rehearsal INTEGER NOT NULL, detail TEXT NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, cycle, node, category, source), {_OF_ATTEMPT}""",
    # A person's words are in no run: run_id is then the home journal's name.
    "exclusion": f"""
        {_WORD}, cluster TEXT NOT NULL, node TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL,
        by TEXT NOT NULL, category TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL,
        rehearsal INTEGER NOT NULL, PRIMARY KEY (run_id, writer, seq)""",
    "readmission": f"""
        {_WORD}, cluster TEXT NOT NULL, node TEXT NOT NULL, at REAL NOT NULL, by TEXT NOT NULL,
        reason TEXT NOT NULL, rehearsal INTEGER NOT NULL, PRIMARY KEY (run_id, writer, seq)""",
}

INDEXES: Final = (
    "CREATE INDEX node_evidence_node ON node_evidence (cluster, node, at)",
    "CREATE INDEX verdict_category ON verdict (category)",
    "CREATE INDEX exclusion_node ON exclusion (cluster, node, until)",
    "CREATE INDEX readmission_node ON readmission (cluster, node, at)",
)

VIEWS: Final[dict[str, str]] = {
    "failures": f"""
        SELECT v.run_id, v.stage, v.attempt_id, v.cycle, v.category, v.domain, v.confidence, v.node,
               v.rank, v.reason, a.nodes, a.exit_code, a.signal, c.step,
               {_iso("ended_at").replace("ended_at", "coalesce(c.ended_at, a.ended_at)", 1)}
        FROM verdict v JOIN attempt a USING (run_id, stage, attempt_id)
        LEFT JOIN cycle c USING (run_id, stage, attempt_id, cycle)
        WHERE v.category NOT IN ('healthy', 'planned_rollover')
        ORDER BY coalesce(c.ended_at, a.ended_at) DESC""",
    "cycles": f"""
        SELECT run_id, stage, attempt_id, cycle, {_iso("started_at")}, {_iso("ended_at")}, node_names,
               resumed_from, step, checkpoint_step, category, node, rank, reason, action, rule
        FROM cycle ORDER BY run_id, stage, attempt_id, cycle.cycle""",
    "excluded_nodes": f"""
        SELECT cluster, node, {_iso("since")}, {_iso("until")}, by, category, reason, run_id
        FROM exclusion x
        WHERE x.until > CAST(strftime('%s', 'now') AS REAL) AND NOT rehearsal AND NOT EXISTS (
            SELECT 1 FROM readmission r
            WHERE r.cluster = x.cluster AND r.node = x.node AND r.at >= x.since AND NOT r.rehearsal)
        ORDER BY cluster, node, x.since""",
}


def statements_v2() -> list[str]:
    """What brings version 1 to version 2."""
    replaced = ("cycle", "verdict", "node_evidence", "exclusion")
    return [
        "DROP VIEW failures",
        *(f"DROP TABLE {name}" for name in replaced),
        *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()),
        *INDEXES,
        *(f"CREATE VIEW {name} AS {select}" for name, select in VIEWS.items()),
        # No journal looks unchanged any more: the next ingest of a run makes its rows anew.
        "UPDATE journal_file SET mtime_ns = -1",
    ]
