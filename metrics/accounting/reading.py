"""What a scope asks of the ledger, as plain values: time by kind, failures, stages. Reads only.

Sums are made in SQL, so that ten thousand attempts stay a matter of a second.
``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from metrics.ledger.queries import FINISHED, resolve_run
from metrics.ledger.store import Ledger
from resiliency import taxonomy

from .kinds import KINDS
from .sums import Key
from .values import Failure, Scope


class Spent(NamedTuple):
    """Time of one kind on one track of an attempt: seconds of each of its nodes."""

    key: Key
    track: int
    kind: str
    nodes: int
    seconds: float


@dataclass(frozen=True)
class StageFact:
    """``over``: it will not go on by itself, so that its figures are final."""

    run_id: str
    stage: str
    over: bool
    gpus_per_node: int | None
    version: str | None


class Reading:
    """One scope's rows. ``where`` holds for every query: ``r`` is the run."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        self.ledger = ledger
        self.run = resolve_run(ledger, scope.run).run_id if scope.run is not None else None
        self.scope = scope
        terms: list[str] = []
        values: dict[str, Any] = {"since": scope.since, "until": scope.until, "now": scope.now}
        for column, value in (("r.run_id", self.run), ("r.cluster", scope.cluster), ("r.user", scope.user)):
            if value is not None:
                name = column.removeprefix("r.")
                terms.append(f"{column} = :{name}")
                values[name] = value
        if self.run is None and not scope.rehearsals:
            terms.append("NOT r.rehearsal")
        self.where = " AND ".join(terms) or "1"
        self.values = values
        if scope.stage is not None:
            values["stage"] = scope.stage

    def _of_stage(self, table: str) -> str:
        return f" AND {table}.stage = :stage" if self.scope.stage is not None else ""

    def stages(self) -> list[StageFact]:
        rows = self.ledger.rows(
            "SELECT s.run_id, s.stage, s.status, s.gpus_per_node, r.version FROM stage s JOIN run r"
            f" USING (run_id) WHERE {self.where}{self._of_stage('s')} ORDER BY s.run_id, s.ordinal",
            self.values,
        )
        return [StageFact(row[0], row[1], row[2] in FINISHED, row[3], row[4]) for row in rows]

    def spent(self) -> list[Spent]:
        """Seconds by attempt, track and kind within the scope's time; what goes on lasts until now."""
        end = "coalesce(i.end_at, max(i.start_at, coalesce(:now, r.last_event_at)))"
        begin = "i.start_at"
        terms = ""
        if self.scope.until is not None:
            terms += " AND i.start_at < :until"
            end = f"min({end}, :until)"
        if self.scope.since is not None:
            terms += " AND coalesce(i.end_at, :since + 1) > :since"
            begin = "max(i.start_at, :since)"
        rows = self.ledger.rows(
            f"SELECT i.run_id, i.stage, i.attempt_id, i.track, i.kind, i.nodes, sum(max(0, {end} - {begin}))"
            f" FROM run r CROSS JOIN interval i ON i.run_id = r.run_id"
            f" WHERE {self.where}{self._of_stage('i')}{terms}"
            " GROUP BY i.run_id, i.stage, i.attempt_id, i.track, i.kind, i.nodes",
            self.values,
        )
        return [Spent((row[0], row[1], row[2]), row[3], row[4], row[5], row[6]) for row in rows]

    def extent(self) -> tuple[float | None, float | None]:
        """First begin and last known end of anything in the scope, Unix seconds."""
        row = self.ledger.rows(
            "SELECT min(i.start_at), max(coalesce(i.end_at, i.start_at)) FROM run r CROSS JOIN interval i"
            f" ON i.run_id = r.run_id WHERE {self.where}{self._of_stage('i')}",
            self.values,
        )[0]
        return row[0], row[1]

    def lost_steps(self) -> dict[Key, int]:
        """Steps thrown away by each attempt, of the cycles that began in the scope's time."""
        rows = self.ledger.rows(
            "SELECT c.run_id, c.stage, c.attempt_id, sum(c.lost_steps) FROM run r CROSS JOIN cycle c"
            f" ON c.run_id = r.run_id WHERE {self.where}{self._of_stage('c')}{self._within('c.started_at')}"
            " GROUP BY c.run_id, c.stage, c.attempt_id",
            self.values,
        )
        return {(row[0], row[1], row[2]): row[3] or 0 for row in rows}

    def _within(self, at: str) -> str:
        terms = ""
        if self.scope.since is not None:
            terms += f" AND {at} >= :since"
        if self.scope.until is not None:
            terms += f" AND {at} < :until"
        return terms

    def failures(self) -> list[Failure]:
        """Failures and interruptions of the scope, the first first."""
        rows = self.ledger.rows(
            "SELECT o.*, v.node, v.rank, v.reason, v.signature, r.rehearsal, c.action, c.rule,"
            " coalesce(c.nodes, a.node_count) AS nodes, s.gpus_per_node"
            " FROM run r CROSS JOIN outage o ON o.run_id = r.run_id"
            " JOIN verdict v USING (run_id, stage, attempt_id, cycle)"
            " JOIN attempt a USING (run_id, stage, attempt_id) JOIN stage s USING (run_id, stage)"
            " LEFT JOIN cycle c USING (run_id, stage, attempt_id, cycle)"
            f" WHERE {self.where}{self._of_stage('o')}"
            f"{self._within('coalesce(o.onset_at, o.detected_at, a.ended_at)')}"
            " ORDER BY coalesce(o.onset_at, o.detected_at), o.run_id, o.stage, o.attempt_id, o.cycle",
            self.values,
        )
        return list(map(_failure, rows))

    def cost_of_causes(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Category → kind → (seconds, node-seconds) of work lost by it and of getting over it.

        Intervals of a cycle are of what ended the cycle; they count whole, whatever the scope's time.
        """
        kinds = ", ".join(f"'{kind.name}'" for kind in KINDS.values() if kind.group in ("lost", "recovery"))
        rows = self.ledger.rows(
            "SELECT o.category, i.kind, sum(CASE WHEN i.track = 0 THEN i.seconds ELSE 0 END),"
            " sum(i.seconds * i.nodes) FROM run r CROSS JOIN outage o ON o.run_id = r.run_id"
            " JOIN interval i USING (run_id, stage, attempt_id, cycle)"
            f" WHERE {self.where}{self._of_stage('o')}{self._within('coalesce(o.onset_at, o.detected_at)')}"
            f" AND i.kind IN ({kinds}) AND i.seconds IS NOT NULL GROUP BY o.category, i.kind",
            self.values,
        )
        found: dict[str, dict[str, tuple[float, float]]] = {}
        for category, kind, seconds, node_seconds in rows:
            found.setdefault(category, {})[kind] = (seconds, node_seconds)
        return found

    def saves(self) -> list[tuple[float | None, float | None]]:
        """(seconds that steps waited, seconds until it counted) of each checkpoint; None: not told."""
        rows = self.ledger.rows(
            "SELECT k.stall_s, k.seconds FROM run r CROSS JOIN checkpoint k ON k.run_id = r.run_id"
            f" WHERE {self.where}{self._of_stage('k')}{self._within('k.at')} ORDER BY k.at, k.writer, k.seq",
            self.values,
        )
        return [(_number(row[0]), _number(row[1])) for row in rows]

    def starts(self) -> int:
        """How often ranks were started."""
        row = self.ledger.rows(
            "SELECT count(*) FROM run r CROSS JOIN cycle c ON c.run_id = r.run_id"
            f" WHERE {self.where}{self._of_stage('c')}{self._within('c.started_at')}",
            self.values,
        )[0]
        return int(row[0])

    def largest(self) -> int:
        """Nodes of the largest allocation; 0: none is known."""
        row = self.ledger.rows(
            "SELECT max(a.node_count) FROM run r CROSS JOIN attempt a ON a.run_id = r.run_id"
            f" WHERE {self.where}{self._of_stage('a')}",
            self.values,
        )[0]
        return row[0] or 0

    def _of_nodes(self, what: str, more: str = "") -> list[Any]:
        return self.ledger.rows(
            f"SELECT {what} FROM run r CROSS JOIN attempt_node n ON n.run_id = r.run_id"
            f" WHERE {self.where}{self._of_stage('n')} AND n.track IS NOT NULL{more}",
            self.values,
        )

    def nodes(self) -> Iterator[tuple[Key, str, int]]:
        """(attempt, node, track) of every node of the scope's attempts."""
        rows = self._of_nodes("n.run_id, n.stage, n.attempt_id, n.node, n.track")
        return (((row[0], row[1], row[2]), row[3], row[4]) for row in rows)

    def members(self, spent: Iterable[Spent]) -> Iterator[tuple[Key, int, str]]:
        """(attempt, track, its nodes, a line each) of every track that has any. ``spent``: the scope's.

        Where all nodes of an attempt did the same, its list of nodes tells as much as many rows.
        """
        tracks: dict[Key, dict[int, int]] = {}
        for one in spent:
            tracks.setdefault(one.key, {})[one.track] = one.nodes
        rows = self.ledger.rows(
            "SELECT a.run_id, a.stage, a.attempt_id, a.nodes FROM run r CROSS JOIN attempt a"
            f" ON a.run_id = r.run_id WHERE {self.where}{self._of_stage('a')}",
            self.values,
        )
        for run, stage, attempt, nodes in rows:
            key = (run, stage, attempt)
            mine = tracks.get(key)
            if not mine:
                continue
            if nodes and mine == {0: nodes.count(",") + 1}:
                yield key, 0, nodes.replace(",", "\n")
                continue
            for track, told in self.ledger.rows(
                "SELECT track, group_concat(node, char(10)) FROM attempt_node WHERE run_id = ? AND stage = ?"
                " AND attempt_id = ? AND track IS NOT NULL GROUP BY track",
                key,
            ):
                yield key, track, told

    def switched(self) -> Iterator[tuple[Key, int, str, int]]:
        """(attempt, track, switch, how many of its nodes) where switches are known."""
        rows = self._of_nodes(
            "n.run_id, n.stage, n.attempt_id, n.track, n.switch, count(*)",
            " AND n.switch IS NOT NULL GROUP BY n.run_id, n.stage, n.attempt_id, n.track, n.switch",
        )
        return (((row[0], row[1], row[2]), row[3], row[4], row[5]) for row in rows)

    def switch_of(self) -> dict[str, str]:
        """Node → its switch, as last told."""
        return {
            row[0]: row[1]
            for row in self._of_nodes("n.node, n.switch", " AND n.switch IS NOT NULL ORDER BY n.first_at")
        }


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None  # text stands for what is no number


def _failure(row: Any) -> Failure:
    gpus = row["gpus_per_node"]
    hours = None if not gpus else row["lost_seconds"] * (row["nodes"] or 0) * gpus / 3600
    return Failure(
        row["run_id"],
        row["stage"],
        row["attempt_id"],
        row["cycle"],
        row["category"],
        taxonomy.category(row["category"]).domain,
        bool(row["counted"]),
        bool(row["rehearsal"]),
        row["node"],
        row["rank"],
        row["reason"],
        row["signature"],
        row["action"],
        row["rule"],
        row["step"],
        row["resumed_from"],
        row["onset_at"],
        row["detected_at"],
        row["decided_at"],
        row["running_at"],
        row["progress_at"],
        row["lost_steps"],
        row["lost_seconds"],
        hours,
        bool(row["tried"]),
    )
