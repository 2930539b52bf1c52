"""One log file → the hits in it, its time range, its boundaries and its progress.

Streams: holds one piece (4 MiB) and a margin. Work per line is spent only where an anchor occurs, and bounded
for lines that repeat. ``tests/resiliency/triage/test_hostile.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from . import clock, lines, neighbours, tracebacks
from .model import CONTEXT, Hit, first_number
from .prefilter import Prefilter
from .progress import Progress, last_progress
from .reader import Source, pieces
from .refine import refine
from .signatures import Signature, SignatureSet, best
from .stamps import Stamps

BEHIND, OVERLAP, APART = 128 << 10, 256, 64 << 10
PER_SIGNATURE, PER_WRITER = 1500, 3
_DIGITS = b"0123456789"
_MARK = tracebacks.MARK.encode()


@dataclass
class FileScan:
    """What one file says. ``boundaries``: hits of markers that begin an attempt or a cycle."""

    name: str
    kind: str = "log"
    node: str | None = None
    rank: int | None = None
    hits: list[Hit] = field(default_factory=list)
    boundaries: list[Hit] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    first_time: float | None = None
    last_time: float | None = None
    last_text: str = ""
    boot_clock: bool = False
    size: int = 0
    lines: int = 0
    notes: list[str] = field(default_factory=list)
    max_task: int = -1


class Scanner:
    """Reads files with one set of signatures; ``nodes`` are names known to be the job's."""

    def __init__(
        self,
        signatures: SignatureSet,
        nodes: Collection[str] = (),
        *,
        expect: int | None = None,
        engine: str | None = None,
    ) -> None:
        self.signatures = signatures
        self.nodes = frozenset(nodes)
        self.prefilter = Prefilter([*signatures.anchors, _MARK], force=engine, expect=expect)
        self._dull: set[bytes] = set()

    def scan(
        self,
        source: Source,
        name: str,
        *,
        kind: str = "log",
        node: str | None = None,
        rank: int | None = None,
        reference: float | None = None,
        limit_bytes: int | None = None,
    ) -> FileScan:
        run = _Run(self, FileScan(name, kind, node, rank), reference)
        buffer, base, done = b"", 0, 0
        for at, data, looked in pieces(source, limit_bytes=limit_bytes):
            if not looked or at != base + len(buffer):
                run.piece(buffer, base, done - base, len(buffer))
                run.skip_lines(buffer, base)
                buffer, base, done = b"", at, at
                run.line_at = at
                if not looked:
                    run.line += data.count(b"\n")
                    run.line_at = base = done = at + len(data)
                    continue
            buffer += data
            upto = max(done - base, len(buffer) - neighbours.AHEAD)
            # Up to the end of a line; inside of a line without end, up to anywhere.
            upto = buffer.rfind(b"\n", done - base, upto) + 1 or upto
            run.piece(buffer, base, done - base, upto)
            done = base + upto
            cut = max(0, upto - BEHIND)
            run.count_to(buffer, base, cut)
            buffer, base = buffer[cut:], base + cut
        run.piece(buffer, base, done - base, len(buffer))
        run.finish(buffer, base)
        run.out.size, run.out.notes = source.size, source.notes
        return run.out

    def dull(self, raw: bytes) -> bool:
        """Whether a line of this shape is known to say nothing, whatever its digits."""
        return raw.translate(None, _DIGITS) in self._dull

    def remember_dull(self, raw: bytes) -> None:
        if len(self._dull) < 20000 and len(raw) < 1000:
            self._dull.add(raw.translate(None, _DIGITS))


class _Run:
    """The state of scanning one file."""

    def __init__(self, scanner: Scanner, out: FileScan, reference: float | None) -> None:
        self.scanner, self.out, self.reference = scanner, out, reference
        self.line, self.line_at = 0, 0  # line ends counted up to this offset
        self.counts: dict[str, int] = {}
        self.by_writer: dict[tuple[str, object, object], Hit] = {}
        self.writer_counts: dict[tuple[str, object, object], int] = {}
        self.base = 0
        self.stamps = Stamps()
        self.more: dict[str, int] = {}
        self.folded: dict[tuple[object, ...], tuple[int, int]] = {}
        self.latest: dict[tuple[str, object, object], Hit] = {}
        self.words: set[bytes] = set()
        self.taken: set[int] = set()  # offsets of lines already read as part of a traceback

    def count_to(self, buffer: bytes, base: int, upto: int) -> int:
        """Line ends up to ``base + upto``."""
        start = self.line_at - base
        if upto > start:
            self.line += buffer.count(b"\n", max(0, start), upto)
            self.line_at = base + upto
        return self.line

    def number(self, buffer: bytes, base: int, at: int) -> int:
        """The number of the line that starts at ``at``; does not move the counter backwards."""
        if base + at >= self.line_at:
            return self.count_to(buffer, base, at) + 1
        return self.line - buffer.count(b"\n", at, self.line_at - base) + 1

    def skip_lines(self, buffer: bytes, base: int) -> None:
        self.count_to(buffer, base, len(buffer))

    # -- one piece -----------------------------------------------------------------------------

    def piece(self, buffer: bytes, base: int, lo: int, hi: int) -> None:
        if hi <= lo:
            return
        self.base = base
        self._range(buffer, lo, hi)
        passed = lo
        # An anchor may lie across the end of the piece before: look back by more than the longest one.
        ids: set[int] = set()
        waiting: tuple[int, int, int] | None = None
        for at, identity in self.scanner.prefilter.find(buffer, max(0, lo - OVERLAP), hi):
            if at < passed:
                ids.add(identity)
                continue
            if waiting is not None:
                self._line(buffer, base, *waiting, ids)
            ids, waiting = {identity}, None
            start = buffer.rfind(b"\n", max(0, at - lines.MAX_LINE), at) + 1
            if start == 0 and (at > lines.MAX_LINE or base):
                start = max(0, at - lines.MAX_LINE // 4)
            end = buffer.find(b"\n", at, at + lines.MAX_LINE)
            if end < 0:
                end = min(len(buffer), at + lines.MAX_LINE)
            passed = end
            if base + start not in self.taken:
                waiting = (start, at, end)
        if waiting is not None:
            self._line(buffer, base, *waiting, ids)
        self._last_progress(buffer, base, lo, hi)
        if len(self.taken) > 5000:
            self.taken = {t for t in self.taken if t >= base + hi}

    def _line(self, buffer: bytes, base: int, start: int, at: int, end: int, ids: set[int]) -> None:
        raw = buffer[start:end]
        if base + start in self.taken:
            return
        if self.scanner.dull(raw):
            return
        text = neighbours.shown(buffer, start, at, end)
        prefix = lines.split_prefix(text, self.scanner.nodes)
        if prefix.task is not None:
            self.out.max_task = max(self.out.max_task, prefix.task)
        body = text[prefix.length :]
        if tracebacks.MARK in body:
            self._traceback(buffer, base, start, end, body, prefix)
            return
        candidates = self.scanner.signatures.candidates(body, self.out.kind, ids)
        found = best([(s, m) for s in candidates if (m := s.search(body))])
        if found is None:
            if not any(s.digits for s in candidates):
                self.scanner.remember_dull(raw)
            return
        self.taken.add(base + start)
        signature, match = found
        if self._repeats(base + start, signature, match, body, prefix):
            return
        if signature.marker == "" and self._is_no_evidence(buffer, start, body, prefix, signature):
            return
        hit = self._hit(signature, match, buffer, base, start, text, prefix)
        if lines.is_retried(body) and signature.role != CONTEXT and self.out.kind == "log":
            hit.role = CONTEXT
        self._keep(hit, signature)

    def _repeats(
        self, place: int, signature: Signature, match: re.Match[str], body: str, prefix: lines.Prefix
    ) -> bool:
        """The same writer has said this often: counted, and no more work spent on it."""
        if signature.marker or signature.id.startswith("elastic-"):
            return False
        code = match.groupdict().get("code")
        key = (signature.id, *prefix.writer, body[:48].split(":", 1)[0], code)
        seen, last = self.folded.get(key, (0, 0))
        # Far from the last one it is a new event, not part of the same burst.
        if seen < PER_WRITER * 20 or place - last > APART:
            self.folded[key] = (seen + 1, place)
            return False
        self.more[signature.id] = self.more.get(signature.id, 0) + 1
        return True

    def _is_no_evidence(
        self, buffer: bytes, start: int, body: str, prefix: lines.Prefix, signature: Signature
    ) -> bool:
        if self.out.kind == "kernel":
            return False
        if lines.is_config(body) or lines.is_advice(body):
            return True
        if body[:1] in " \t":
            return lines.is_source_line(body, neighbours.previous(buffer, start, prefix, self.scanner.nodes))
        return False

    def _traceback(
        self, buffer: bytes, base: int, start: int, end: int, body: str, prefix: lines.Prefix
    ) -> None:
        before = neighbours.previous(buffer, start, prefix, self.scanner.nodes) or ""
        found = tracebacks.parse(
            body, neighbours.following(buffer, end, prefix, self.scanner.nodes), before=before
        )
        if found is None:
            return
        self.taken.add(base + found.offset)
        if found.harmless:
            return
        chosen = self._exception(found)
        if chosen is None:
            return
        signature, match = chosen
        first = found.text.splitlines()[0]
        hit = self._hit(signature, match, buffer, base, found.offset, first, prefix, start)
        hit.groups["frames"] = found.frames
        hit.groups["message"] = found.text
        if found.chained and signature.generic:
            hit.role = CONTEXT
        self._keep(hit, signature)

    def _exception(self, found: tracebacks.Traceback) -> tuple[Signature, re.Match[str]] | None:
        """By the exception's own line; by the lines of its message only if that one says nothing special."""
        first, _, rest = found.text.partition("\n")
        chosen = best(self.scanner.signatures.of_exception(first, found.frames))
        if rest and (chosen is None or chosen[0].generic):
            more = best(
                [f for f in self.scanner.signatures.of_exception(rest, found.frames) if not f[0].generic]
            )
            return more or chosen
        return chosen

    # -- pieces of a hit -----------------------------------------------------------------------

    def _hit(
        self,
        signature: Signature,
        match: re.Match[str],
        buffer: bytes,
        base: int,
        start: int,
        text: str,
        prefix: lines.Prefix,
        began: int | None = None,
    ) -> Hit:
        groups = {k: v for k, v in match.groupdict().items() if v is not None}
        hit = Hit(
            signature.id,
            signature.category,
            signature.role,
            self.out.name,
            self.number(buffer, base, start),
            text.strip()[:600],
            order=base + start,
            kind="kernel" if self.out.kind == "kernel" else "log",
            lag_s=signature.lag_s,
            generic=signature.generic,
            action=signature.action,
            node=groups.get("node") or (prefix.node if prefix.node else None) or self.out.node,
            rank=first_number(groups.get("rank"), prefix.rank, self.out.rank),
            gpu=first_number(groups.get("gpu"), prefix.local),
            pci=groups.get("pci"),
            pid=first_number(groups.get("pid"), prefix.pid),
            peer=groups.get("peer"),
            groups=groups,
            proof=signature.proof,
        )
        if prefix.task is not None:
            hit.groups["task"] = str(prefix.task)
        if prefix.ip:
            hit.groups["ip"] = prefix.ip
        self._time(hit, buffer, start if began is None else began, start, text)
        refine(hit)
        return hit

    def _time(self, hit: Hit, buffer: bytes, began: int, start: int, text: str) -> None:
        stamp = clock.find(text[:600], self._reference())
        if stamp is not None:
            hit.time, hit.timed = stamp.seconds, True
            self.out.boot_clock |= stamp.boot
            return
        before, near = self.stamps.before(buffer, self.base, began, self._reference())
        after = self.stamps.after(buffer, self.base, start, self._reference())
        # Between two times: just after the one before if that is near, else just before the
        # next one (what ends a
        # job is followed at once by lines with a time; the last one before may be hours older).
        later = after is not None and (before is None or (after >= before and not near))
        hit.time = after if later else before
        hit.latest = after

    def _reference(self) -> float | None:
        return self.reference if self.reference is not None else self.out.first_time

    def _keep(self, hit: Hit, signature: Signature) -> None:
        if signature.marker:
            hit.groups["marker"] = signature.marker
            self.out.boundaries.append(hit)
            if signature.marker in ("attempt", "requeue"):
                self.counts.clear()
                self.writer_counts.clear()
                self.folded.clear()
                self.latest.clear()
                self.more.clear()
            if len(self.out.boundaries) > 5000:
                del self.out.boundaries[: len(self.out.boundaries) // 2]
            return
        writer: tuple[str, object, object] = (
            signature.id,
            hit.rank if hit.rank is not None else hit.node,
            hit.groups.get("code"),
        )
        seen = self.writer_counts.get(writer, 0)
        total = self.counts.get(signature.id, 0)
        allowed = PER_WRITER * (10 if hit.rank is None else 1)
        if total >= PER_SIGNATURE or (seen >= allowed and not signature.id.startswith("elastic-")):
            if writer in self.by_writer:
                self.by_writer[writer].count += 1
                self.latest[writer] = hit
            return
        self.writer_counts[writer] = seen + 1
        self.counts[signature.id] = total + 1
        self.by_writer.setdefault(writer, hit)
        self.out.hits.append(hit)

    # -- time range and progress ---------------------------------------------------------------

    def _range(self, buffer: bytes, lo: int, hi: int) -> None:
        if self.out.first_time is None:
            head = buffer[lo : min(hi, lo + 65536)].decode("utf-8", "replace")
            stamp = clock.find(head, self.reference)
            if stamp is not None and stamp.partial and self.reference is None and not stamp.boot:
                stamp = next(filter(_whole, (clock.find(t) for t in head.splitlines()[:400])), None)
            if stamp is not None:
                self.out.first_time, self.out.boot_clock = stamp.seconds, stamp.boot

    def _last_progress(self, buffer: bytes, base: int, lo: int, hi: int) -> None:
        for start, step, head in last_progress(buffer, lo, hi, self.words):
            stamp = clock.find(head, self._reference())
            when = stamp.seconds if stamp and not stamp.boot else None
            place = Progress(base + start, self.number(buffer, base, start), when, step)
            self.out.progress.append(place)
        if len(self.out.progress) > 3000:
            del self.out.progress[:1500:2]

    def finish(self, buffer: bytes, base: int) -> None:
        self.count_to(buffer, base, len(buffer))
        # The last one counts as much as the first: it may be the one that was not got over.
        self.out.hits += sorted(self.latest.values(), key=lambda h: h.order)
        for hit in reversed(self.out.hits):
            hit.count += self.more.pop(hit.signature, 0)
        self.out.lines = self.line + (0 if buffer.endswith(b"\n") or not buffer else 1)
        tail = buffer[-65536:].decode("utf-8", "replace")
        stamp = clock.find_last(tail, self._reference())
        if stamp is not None:
            self.out.last_time = stamp.seconds
            self.out.boot_clock |= stamp.boot
        rest = [t for t in tail.splitlines() if t.strip()]
        self.out.last_text = lines.plain(rest[-1])[:400] if rest else ""


def _whole(stamp: clock.Stamp | None) -> bool:
    return stamp is not None and not stamp.partial
