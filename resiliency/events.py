"""The journal's record: one event, one JSON line, one checksum.

Compatibility: within schema version 1 fields and types may only be added; a reader keeps events of a
type it does not know. ``TYPES`` is the catalogue; ``tests/resiliency/test_events.py`` fails when code
emits a type that is not in it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .lines import FIELDS, parts

SCHEMA_VERSION: Final = 1

TYPES: Final[dict[str, str]] = {
    "run.created": "run directory complete: name, spec_digest, cluster, user, experiment, version, stages",
    "run.resumed": "a person asked to go on: stages = {name: epoch}",
    "run.cancelled": "a person asked to stop: stages = {name: epoch}, by",
    "submission.intent": "about to submit: token, stage, link, cluster, epoch, script_sha256, "
    "exclude (nodes)",
    "submission.accepted": "a job exists: token, job_id, via (submit or lookup)",
    "submission.rejected": "definitely refused, no job exists: token, reason",
    "submission.uncertain": "the answer was lost: token, reason, looked_up (a look-up found nothing)",
    "submission.absent": "looked up and proved not to exist: token",
    "job.observed": "the scheduler's word changed: token, job_id, restart_count, state, exit_code, signal, "
    "reason, nodes, submitted_at, started_at, ended_at",
    "job.missing": "no source that answered lists the job: token, job_id",
    "job.gone": "the scheduler no longer knows the job: token, job_id",
    "job.released": "a held job was released: token, job_id, reason",
    "link.cancelled": "we cancelled a job of our own: token, job_id, reason",
    "link.excluding": "a queued link is kept off nodes (none: no longer): token, job_id, nodes, reason",
    "duplicate.refused": "a second job of one link ended itself: token, job_id, owner",
    "attempt.started": "the segment supervisor runs: token, link, job_id, restart_count, nodes, host, "
    "time_limit_s",
    "attempt.gate": "whether the stage may start: verdict (go, complete, wait, stopped), detail",
    "attempt.finished": "the segment supervisor ends: exit_code, category, reason, step, resumed_from, "
    "decision, rule",
    "role.started": "a role's process started on a node: role, pid",
    "role.exited": "a role's process ended on a node: role, exit_code",
    "drain.requested": "the attempt must stop: reason (time_limit, preempted, cancelled), signal",
    "progress": "aggregate from rank 0: step, loss, tokens, section, steps_per_s, spent = {section: seconds "
    "of the process so far}, memory_bytes (most of its GPU), tflops_per_gpu (of imported logs)",
    "workload.resumed": "training goes on from a checkpoint: step, checkpoint, source (memory, global)",
    "workload.error": "a program's own last word: category, message, hint; node, rank if known",
    "checkpoint.committed": "a checkpoint is complete: step, path, bytes, seconds (from its start), stall_s",
    "checkpoint.quarantined": "a checkpoint failed verification and was set aside: path, reason",
    "data.built": "a dataset is complete: documents, tokens, bytes",
    "eval.result": "measured figures: metrics",
    "decision": "what the policy said: action, rule, reason, category, exclude (nodes), in_job, evidence, "
    "shadow",
    "preflight": "nodes were checked: cycle, status (OK, WARN, CRITICAL, UNKNOWN), seconds, "
    "checks = [{node, check, status, category, detail}] (those that are not OK), failed (nodes)",
    "cycle.started": "ranks are being started in the allocation: cycle, nodes, spares, world, port",
    "incident": "something in a running cycle that must be decided on: cycle, kind (rank_end, hang, "
    "node_lost, straggler, launch), onset, detected, node, rank, step, detail, evidence",
    "verdict": "what an incident or attempt is taken for: category, role, confidence, reason, node, rank, "
    "signature, evidence, source",
    "verdict.corrected": "a person's word on a verdict: attempt, said, label, by, note",
    "cycle.ended": "a cycle is over: cycle, category, signature, reason, step, saved_step, node, rank, "
    "continued (another cycle follows in this allocation), codes = {exit code: ranks}, failed (ranks)",
    "node.swapped": "a spare took a node's place: out, in, reason",
    "node.lost": "a node of the allocation is gone: node, reason",
    "node.shrunk": "the stage goes on smaller: nodes, world, reason",
    "node.excluded": "a node is kept out: node, cluster, category, reason, until, evidence, by (person:NAME, "
    "proof or quorum)",
    "node.readmitted": "a person or a repair let a node back: node, cluster, reason, by",
    "workload.timing": "what a start was spent on: phases = {imports, groups, model, data, load, first_step} "
    "in seconds, step; flops_per_token, peak_flops (of a GPU), gpus",
    "straggler": "a rank is slow against its peers: rank, node, ratio, window, seconds, peers",
    "hang.evidence": "what was gathered before a hang was ended: files, culprits, records",
    "checkpoint.interval": "an interval between saves was chosen: steps, seconds, cost_s, mtbf_s, reason",
    "snapshot.taken": "node-local copies (aggregate): step, bytes, seconds, stall_s, replicas, count",
    "fault.injected": "a rehearsal did harm on purpose: kind, step, rank, node, id",
    "import.source": "history that Trainmaster did not make was added: source (sacct, log), file, rows",
    "stage.completed": "the stage's artifact verifies: epoch, artifact",
    "stage.stopped": "the stage will not go on by itself: epoch, category, rule, reason",
    "stage.held": "waits for a person or a condition: epoch, category, rule, reason",
}


class BadEvent(ValueError):
    """A line that is not an intact event."""


@dataclass(frozen=True)
class Event:
    """One fact, written once, never changed.

    ``ts`` is Unix seconds of the writer's wall clock (clocks of nodes differ: never compare across
    writers to decide), ``mono`` seconds of its monotonic clock, ``seq`` counts from 1 per writer.
    ``attempt`` is an id made by :func:`resiliency.contract.attempt_id`.
    """

    type: str
    run: str
    writer: str
    seq: int
    ts: float
    mono: float
    stage: str | None = None
    attempt: str | None = None
    cycle: int | None = None
    node: str | None = None
    rank: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    v: int = SCHEMA_VERSION

    @property
    def key(self) -> tuple[str, int]:
        """Identity within a run: duplicates of it are the same event."""
        return (self.writer, self.seq)

    @property
    def order(self) -> tuple[float, str, int]:
        """A total order for display and for last-writer-wins; not causality."""
        return (self.ts, self.writer, self.seq)


_OPTIONAL = ("stage", "attempt", "cycle", "node", "rank")


def encode(event: Event) -> str:
    """One line without its newline: compact JSON ending in ``,"crc":"xxxxxxxx"}``.

    The checksum is CRC-32 (zlib) of the text before ``,"crc"``, so it is checked without re-encoding.
    """
    record: dict[str, Any] = {"v": event.v, "type": event.type, "run": event.run}
    for name in _OPTIONAL:
        value = getattr(event, name)
        if value is not None:
            record[name] = value
    record |= {
        "writer": event.writer,
        "seq": event.seq,
        "ts": round(event.ts, 6),
        "mono": round(event.mono, 6),
        "data": dict(event.data),
    }
    # NaN is not JSON: a loss of NaN is written as the string "nan" by whoever reports it.
    body = _ENCODER.encode(record)[:-1]
    return f'{body},"crc":"{zlib.crc32(body.encode()):08x}"}}'


_INT = 2**63
_TAIL = len(',"crc":"00000000"}')


def _no_constant(name: str) -> Any:
    raise BadEvent(f"{name} is not JSON")


# Made once: json.dumps and json.loads with options make a new one for each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _checked(record: dict[str, Any]) -> Event:
    get = record.get
    texts = (record["type"], record["run"], record["writer"], get("stage"), get("attempt"), get("node"))
    for text in texts:
        if text is not None and not (isinstance(text, str) and (text.isascii() or text.encode())):
            raise BadEvent("a name is not text")  # encode: a lone surrogate fits no file or table
    if None in texts[:3]:
        raise BadEvent("type, run or writer is missing")
    numbers = (record["seq"], get("cycle"), get("rank"))
    for number in numbers:
        if number is not None and not (isinstance(number, int) and -_INT <= number < _INT):
            raise BadEvent("seq, cycle or rank is not a whole number of 64 bits")
    ts, mono = float(record["ts"]), float(get("mono", 0.0))
    if not (math.isfinite(ts) and math.isfinite(mono)):
        raise BadEvent("time is not finite")
    data = get("data") or {}
    if not isinstance(data, dict):
        raise BadEvent("data is not an object")
    kind, run, writer, stage, attempt, node = texts
    seq, cycle, rank = numbers
    v = int(get("v", SCHEMA_VERSION))
    if not -_INT <= v < _INT:
        raise BadEvent("v is not a whole number of 64 bits")
    return Event(kind, run, writer, int(seq), ts, mono, stage, attempt, cycle, node, rank, data, v)


def made(values: Sequence[Any], data: Mapping[str, Any]) -> Event:
    """The event of the values of :data:`resiliency.lines.FIELDS`, already checked."""
    # Not by the constructor: a frozen one sets each field with a call of its own, half of what
    # reading a line costs.
    event = object.__new__(Event)
    event.__dict__.update(zip(FIELDS, values, strict=True), data=data)
    return event


def decode(line: str | bytes) -> Event:
    """Parse and check one line. Raises BadEvent when it is torn, altered or not an event."""
    raw = line.encode() if isinstance(line, str) else line
    found = parts(raw)
    return made(*found) if found is not None else decode_slowly(raw)


def decode_slowly(line: bytes) -> Event:
    """The same by the standard library alone, which has the last word on what is unusual."""
    raw = line.strip()
    body, tail = raw[:-_TAIL], raw[-_TAIL:]
    if not (tail.startswith(b',"crc":"') and tail.endswith(b'"}')):
        raise BadEvent("no checksum at the end")
    if tail[8:16] != b"%08x" % zlib.crc32(body):
        raise BadEvent("checksum does not match")
    try:
        return _checked(_DECODER.decode(body.decode() + "}"))
    except BadEvent:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise BadEvent(f"not an event: {error}") from error
