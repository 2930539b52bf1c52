"""The page for a person: one line that says it, the lines that prove it, when, where, what next, whose it is.

Plain text, at most 40 lines of 80 columns. Pure; colour is the terminal's business
(``orchestrator.cli.triage``). ``tests/resiliency/triage/test_page.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from ..taxonomy import category
from .model import TriageVerdict

WIDTH, HEIGHT = 80, 40

OWNERS = {
    "application": "user",
    "framework": "user, then the framework's maintainers",
    "gpu": "hardware",
    "network": "network",
    "storage": "storage",
    "host": "hardware (the node's administrators)",
    "scheduler": "nobody: the scheduler did what it should",
    "performance": "user, then hardware",
    "none": "nobody",
    "unknown": "user",
}
_OWNER_OF = {
    "host_oom": "user",
    "shm_exhausted": "user",
    "container_image": "user",
    "gpu_fault": "user first, hardware if it comes back on that GPU",
    "submit_uncertain": "user, then the scheduler's administrators",
    "launch_failed": "the scheduler's administrators",
}
ACTIONS = {
    "none": "nothing to do",
    "restart_in_job": "start again",
    "requeue": "run again",
    "requeue_excluding": "run again without it",
    "rollback_checkpoint": "go back one checkpoint",
    "hold": "wait until it is mended",
    "stop": "do not run again as it is",
}


def owner(verdict: TriageVerdict) -> str:
    return _OWNER_OF.get(verdict.category, OWNERS.get(verdict.domain, "user"))


def headline(verdict: TriageVerdict) -> str:
    """One line: what, where, what to do."""
    where = f" on {verdict.node}" if verdict.node else ""
    rank = f" (rank {verdict.rank})" if verdict.rank is not None else ""
    return f"{category(verdict.category).phrase}{where}{rank}: {ACTIONS.get(verdict.action, verdict.action)}"


def next_commands(verdict: TriageVerdict, *, run: str = "", stage: str = "", job: str = "") -> list[str]:
    """Ready to paste, the most useful first."""
    me = "python -m orchestrator"
    of_stage = f" --stage {stage}" if stage else ""
    resume = f"{me} resume {run}{of_stage}" if run else ""
    logs = f"{me} logs {run}{of_stage}" if run else ""
    found: list[str] = []
    if verdict.action == "requeue_excluding" and verdict.node:
        reason = shlex.quote(f"trainmaster: {verdict.category} job {job or '?'}")
        found.append(f"scontrol update NodeName={verdict.node} State=DRAIN Reason={reason}")
        found.append(resume or f"sbatch --exclude={verdict.node} JOB.sbatch")
        found.append(f"scripts/oncall-bundle {verdict.node}")
    elif verdict.action in ("requeue", "restart_in_job"):
        found.append(resume or (f"scontrol requeue {job}" if job else "sbatch JOB.sbatch"))
    elif verdict.action == "rollback_checkpoint":
        found.append(f"{me} status {run}" if run else "ls -t CHECKPOINTS | head")
        found.append(resume)
    elif verdict.action == "hold":
        path = _path(verdict)
        if verdict.category == "submit_uncertain":
            found.append("squeue --me --format='%i %j %k'")
        elif path:
            found.append(f"df -h {shlex.quote(path)}; lfs quota -h {shlex.quote(path)}")
        found.append(resume)
    elif verdict.action == "stop":
        found.append(logs)
        found.append(resume + "   # once it is changed" if resume else "")
    if verdict.category in ("unknown", "comm_timeout", "hang"):
        found.append(logs)
    return [c for c in dict.fromkeys(found) if c]


def _path(verdict: TriageVerdict) -> str:
    for row in verdict.evidence:
        match = re.search(r"'(/[^']+)'", str(row.get("text", "")))
        if match:
            return match[1].rsplit("/", 1)[0] or "/"
    return ""


def lines(
    verdict: TriageVerdict,
    *,
    title: str = "",
    run: str = "",
    stage: str = "",
    job: str = "",
    history: Sequence[str] = (),
    explain: bool = False,
    everything: bool = False,
    width: int = WIDTH,
) -> list[str]:
    """The page. ``everything``: of any length; ``explain``: also why and what else it might be."""
    out = [_cut(headline(verdict), width)]
    if title:
        out.append(_cut(title, width))
    sure = f"{verdict.category}, sure {verdict.confidence:.2f}; owner: {owner(verdict)}"
    out.append(_cut(sure, width))
    if explain and verdict.reason:
        out += _wrapped(verdict.reason, width)
    if verdict.evidence:
        out += ["", "proof"]
        shown = verdict.evidence if everything else verdict.evidence[:5]
        out += [line for row in shown for line in _proof(row, width)]
    if verdict.chain:
        out += ["", "timeline"]
        telling = [r for r in verdict.chain if r["category"] != "unknown"] or verdict.chain
        rows = verdict.chain if everything else telling[: 9 if not explain else 6]
        out += [_moment(row, width) for row in rows]
    if verdict.node or verdict.gpu is not None or history:
        out += ["", "place"]
        gpu = f"  gpu {verdict.gpu}" if verdict.gpu is not None else ""
        rank = f"  rank {verdict.rank}" if verdict.rank is not None else ""
        if verdict.node or gpu or rank:
            out.append(_cut(f"  {verdict.node or '?'}{gpu}{rank}", width))
        out += [_cut(f"  {line}", width) for line in (history if everything else history[:4])]
    if explain and verdict.alternatives:
        out += ["", "it might also be"]
        for row in verdict.alternatives if everything else verdict.alternatives[:3]:
            out.append(_cut(f"  {row['category']} ({row['file']}:{row['line']})", width))
            out.append(_cut(f"    would need {row['would_need']}", width))
    if explain and verdict.notes:
        out += ["", "notes"] + [
            _cut(f"  {n}", width) for n in (verdict.notes if everything else verdict.notes[:4])
        ]
    commands = next_commands(verdict, run=run, stage=stage, job=job)
    tail = ["", "next", *(row for c in commands[:4] for row in _pasted(c, width))] if commands else []
    return [*out, *tail] if everything else _fit(out, tail)


def _fit(body: list[str], tail: list[str]) -> list[str]:
    """The commands stay whole: half a command, once pasted, is another one."""
    if len(body) + len(tail) <= HEIGHT:
        return body + tail
    tail = [r for r in tail if r]
    return [r for r in body if r][: max(0, HEIGHT - len(tail))] + tail


_WORD = re.compile(r"""#.*|(?:'[^']*'|"[^"]*"|[^\s'"])+|\S""")


def _pasted(command: str, width: int) -> list[str]:
    """A command over as many lines as it needs, joined by backslashes; words, quoted or not, stay whole."""
    if len(command) + 2 <= width:
        return [f"  {command}"]
    rows = [" "]
    for word in _WORD.findall(command):
        if len(rows[-1]) + 1 + len(word) + 2 > width and rows[-1].strip():
            rows[-1] += " \\"
            rows.append("   ")
        rows[-1] += f" {word}"
    return rows


_STAMPS = re.compile(
    r"^(?:\[(?:rank|default)?\d+\]: ?|\[[IWEF]?[\d:. T-]+(?: [\w./]+:\d+)?\] ?|"
    r"\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\] |"
    r"[IWEF]\d{4} [\d:.]+ \d+ [\w/.]+:\d+\] |\w{3} +\d+ [\d:]+ \S+ kernel: |\d+: )+"
)


def _proof(row: dict[str, Any], width: int) -> list[str]:
    """File and line, then the text without its stamps; two lines at most."""
    place = f"{row['file']}:{row['line']}" if row.get("line") else str(row["file"])
    text = _STAMPS.sub("", str(row.get("text", "")).strip())
    whole = f"  {place}  {text}"
    if len(whole) <= width:
        return [_cut(whole, width)]
    return [_cut(f"  {place}", width), _cut(f"    {text}", width)]


def _moment(row: dict[str, Any], width: int) -> str:
    time = str(row.get("time", ""))[11:19] or "        "
    where = row.get("node") or (f"rank {row['rank']}" if row.get("rank") is not None else "")
    ranks = f"{row['ranks']} ranks" if row.get("ranks", 0) > 1 else ""
    word = {"root": "root", "cascade": "follows", "outlived": "outlived"}.get(str(row.get("role")), "")
    tail = " ".join(str(t) for t in (ranks or where, row.get("signature")) if t)
    return _cut(f"  {time}  {word:<8}  {row['category']:<16}  {tail}", width)


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def _cut(text: str, width: int) -> str:
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
