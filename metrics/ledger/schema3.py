"""Schema version 3: intervals per track, what each failure cost, a way to single progress words.

Every run is looked at again at its next ingest, which makes its rows anew. A released version is never
edited. ``docs/ledger.md``, ``docs/accounting.md``.
"""

from __future__ import annotations

from typing import Final

from metrics.accounting.kinds import KINDS, PRODUCTIVE

from .schema import _ATTEMPT, _OF_ATTEMPT, _iso

TABLES: Final[dict[str, str]] = {
    "attempt_node": f"""
        {_ATTEMPT}, node TEXT NOT NULL, first_at REAL, last_at REAL, track INTEGER, switch TEXT,
        PRIMARY KEY (run_id, stage, attempt_id, node), {_OF_ATTEMPT}""",
    "interval": f"""
        {_ATTEMPT}, track INTEGER NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL, cycle INTEGER,
        start_at REAL NOT NULL, end_at REAL, seconds REAL, nodes INTEGER NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, track, n), {_OF_ATTEMPT}""",
    "outage": f"""
        {_ATTEMPT}, cycle INTEGER NOT NULL, category TEXT NOT NULL, counted INTEGER NOT NULL, step INTEGER,
        resumed_from INTEGER, onset_at REAL, detected_at REAL, decided_at REAL, running_at REAL,
        progress_at REAL, lost_steps INTEGER NOT NULL, lost_seconds REAL NOT NULL, tried INTEGER NOT NULL,
        PRIMARY KEY (run_id, stage, attempt_id, cycle), {_OF_ATTEMPT}""",
}

COLUMNS: Final = (
    ("run", "rehearsal INTEGER NOT NULL DEFAULT 0"),
    ("stage", "gpus_per_node INTEGER"),
    ("checkpoint", "stall_s REAL"),
    ("cycle", "base_step INTEGER"),
    ("cycle", "lost_steps INTEGER"),
    ("cycle", "lost_seconds REAL"),
)

#: Clustered by their key: the largest after the events, written and read in its order. No index on nodes:
#: it took most of what a row costs, and going through a million of them takes a tenth of a second.
_CLUSTERED: Final = frozenset({"attempt_node", "interval"})

INDEXES: Final = (
    "CREATE INDEX outage_onset ON outage (onset_at)",
    # Not for reading all words of a cycle, but for the few that the accounting asks for.
    "CREATE INDEX event_progress ON event (run_id, attempt_id, coalesce(cycle, 0), ts)"
    " WHERE type = 'progress'",
)

_OUTSIDE: Final = ", ".join(f"'{kind.name}'" for kind in KINDS.values() if not kind.group)
_UNPAID: Final = ", ".join(f"'{kind.name}'" for kind in KINDS.values() if not kind.allocated)
_GOOD: Final = ", ".join(f"'{kind}'" for kind in PRODUCTIVE)


def _sum(what: str, kinds: str = "", *, wall: bool = False) -> str:
    where = " AND ".join([*(["track = 0"] if wall else []), *([f"kind IN ({kinds})"] if kinds else [])])
    return f"coalesce(sum(CASE WHEN {where} THEN {what} END), 0.0)"


VIEWS: Final[dict[str, str]] = {
    "intervals": f"""
        SELECT run_id, stage, attempt_id, track, kind, cycle, {_iso("start_at")}, {_iso("end_at")}, seconds,
               nodes, seconds * nodes AS node_seconds
        FROM interval ORDER BY run_id, interval.start_at, stage, attempt_id, track, n""",
    "waterfall": f"""
        SELECT run_id, stage, kind, {_sum("seconds", wall=True)} AS seconds,
               sum(seconds * nodes) AS node_seconds,
               round({_sum("seconds", wall=True)} / nullif((
                   SELECT sum(w.seconds) FROM interval w WHERE w.run_id = i.run_id AND w.stage = i.stage
                   AND w.track = 0 AND w.kind NOT IN ({_OUTSIDE})), 0), 6) AS share
        FROM interval i WHERE kind NOT IN ({_OUTSIDE}) AND seconds IS NOT NULL
        GROUP BY run_id, stage, kind ORDER BY run_id, stage, seconds DESC""",
    "goodput": f"""
        SELECT run_id, wall_s, node_hours, round(good_s / nullif(wall_s, 0), 6) AS ettr,
               round(good_node_s / 3600 / nullif(node_hours, 0), 6) AS goodput,
               round(provisional_node_s / 3600 / nullif(node_hours, 0), 6) AS provisional,
               round(lost_node_s / 3600, 6) AS lost_node_hours,
               round(unknown_node_s / 3600 / nullif(node_hours, 0), 6) AS unknown
        FROM (
            SELECT run_id, sum(CASE WHEN track = 0 THEN seconds ELSE 0 END) AS wall_s,
                   sum(CASE WHEN kind NOT IN ({_UNPAID}) THEN seconds * nodes ELSE 0 END) / 3600
                       AS node_hours,
                   {_sum("seconds", _GOOD, wall=True)} AS good_s,
                   {_sum("seconds * nodes", _GOOD)} AS good_node_s,
                   {_sum("seconds * nodes", "'provisional'")} AS provisional_node_s,
                   {_sum("seconds * nodes", "'lost'")} AS lost_node_s,
                   {_sum("seconds * nodes", "'unknown'")} AS unknown_node_s
            FROM interval WHERE kind NOT IN ({_OUTSIDE}) AND seconds IS NOT NULL GROUP BY run_id)
        ORDER BY run_id""",
}


def statements_v3() -> list[str]:
    """What brings version 2 to version 3."""
    return [
        *(f"DROP TABLE {name}" for name in sorted(_CLUSTERED)),
        "DROP INDEX event_type",  # nothing asks by type over all runs
        *(
            f"CREATE TABLE {name} ({columns}){' WITHOUT ROWID' if name in _CLUSTERED else ''}"
            for name, columns in TABLES.items()
        ),
        *(f"ALTER TABLE {table} ADD COLUMN {column}" for table, column in COLUMNS),
        *INDEXES,
        *(f"CREATE VIEW {name} AS {select}" for name, select in VIEWS.items()),
        # No journal looks unchanged any more: the next ingest of a run makes its rows anew.
        "UPDATE journal_file SET mtime_ns = -1",
    ]
