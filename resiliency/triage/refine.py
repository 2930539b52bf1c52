"""What a hit's own text says beyond its signature: Xid codes, waiting times, NCCL's host and GPU, peers.

Pure; one function per kind of line. ``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

import re

from . import catalogue
from .model import AMBIGUOUS, CASCADE, CONTEXT, ROOT, Hit

_NCCL = re.compile(r"(?:^|[\s>\]:])(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[(?P<gpu>-?\d+)\] ")
_RANK = re.compile(r"\[(?:PG [^\]]{0,60} )?Rank (?P<rank>\d+)\]")
_RECOVERY = re.compile(r"\((?P<to>[^()]+)\)\s*$")
_SYSLOG = re.compile(r"^\S{3} +\d+ [\d:]+ (?P<a>[\w.-]+) kernel: |^20\S+ (?P<b>[\w.-]+) kernel: ")


def refine(hit: Hit) -> None:
    """Complete ``hit`` in place."""
    groups = hit.groups
    for name in ("pci", "device", "node"):
        for suffix in ("2", "3", "4"):
            if groups.get(name + suffix) and not groups.get(name):
                groups[name] = groups[name + suffix]
    hit.pci = groups.get("pci") or hit.pci
    hit.node = groups.get("node") or hit.node
    if hit.kind == "kernel":
        match = _SYSLOG.match(hit.text)
        if match and hit.node is None:
            hit.node = match["a"] or match["b"]
    else:
        match = _NCCL.search(hit.text)
        if match:
            groups["reporter"] = match["host"]
            hit.node = groups.get("node") or match["host"]
            hit.pid = int(match["pid"])
            hit.gpu = int(match["gpu"]) if int(match["gpu"]) >= 0 else hit.gpu
    if hit.rank is None:
        match = _RANK.search(hit.text)
        if match:
            hit.rank = int(match["rank"])
    refiner = _BY_ID.get(hit.signature)
    if refiner is not None:
        refiner(hit)


def _xid(hit: Hit) -> None:
    code = int(hit.groups["code"])
    row = catalogue.xids().get(code)
    text = hit.groups.get("text", "")
    if row is None:
        hit.role = AMBIGUOUS
        return
    hit.category, hit.role, hit.proof = row["category"], row["role"], bool(row["proof"])
    hit.groups["name"], hit.groups["bucket"] = row["text"], row["immediate"]
    if hit.role == "by_severity":
        fatal = bool(re.search(r"\bFatal\b", text))
        hit.role, hit.proof = (ROOT, True) if fatal else (CONTEXT, False)
    if code == 154:
        hit.role = CONTEXT
        match = _RECOVERY.search(text.strip().rstrip("."))
        if match:
            hit.groups["recovery"] = catalogue.RECOVERY.get(match["to"], match["to"])
    hit.action = ""


def _sxid(hit: Hit) -> None:
    code = int(hit.groups.get("code") or hit.groups.get("fmcode") or 0)
    row = catalogue.sxids().get(code)
    word = (hit.groups.get("severity") or hit.groups.get("fmseverity") or "").lower()
    severity = row["severity"] if row else ("potential" if word == "fatal" else "non_fatal")
    hit.groups["code"] = str(code)
    if row:
        hit.groups["name"] = row["text"]
    if severity == "always" or word == "fatal":
        hit.role, hit.proof = ROOT, True
    elif severity == "potential" and word != "non-fatal":
        hit.role, hit.proof = AMBIGUOUS, False
    else:
        hit.role, hit.proof = CONTEXT, False


def _timeout(hit: Hit) -> None:
    if hit.groups.get("timeout"):
        hit.lag_s = int(hit.groups["timeout"]) / 1000


def _waited(hit: Hit) -> None:
    for name in ("waited", "waited2", "stuck"):
        if hit.groups.get(name):
            hit.lag_s = float(hit.groups[name])


def _completion(hit: Hit) -> None:
    # ibv_wc_status 5 (flushed) only says that the queue pair was in error already.
    if hit.groups.get("status") == "5":
        hit.role = CASCADE


def _blocked(hit: Hit) -> None:
    hit.node = hit.node or None


def _oom(hit: Hit) -> None:
    if "name2" in hit.groups and "name" not in hit.groups:
        hit.groups["name"] = hit.groups["name2"]


_BY_ID = {
    "nvidia-xid": _xid,
    "nvidia-sxid": _sxid,
    "nccl-watchdog-timeout": _timeout,
    "gloo-timeout": _timeout,
    "heartbeat-missed": _waited,
    "nccl-ib-completion": _completion,
    "oom-kernel": _oom,
    "task-blocked": _blocked,
}
