"""sacctmgr: what the user may charge, how many jobs may be queued. Pure.

``tests/orchestrator/test_slurm_facts.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from . import fields

_ASSOCIATION: Final = ("Account", "User", "MaxJobs", "MaxSubmit", "GrpSubmit", "QOS")
_QOS: Final = ("Name", "MaxSubmitPU", "MaxSubmitPA", "GrpSubmit", "MaxJobsPU")


def associations_of(user: str, cluster: str | None) -> list[str]:
    where = [f"user={user}", *([f"cluster={cluster}"] if cluster else [])]
    return _show("assoc", _ASSOCIATION, "where", *where)


def all_qos() -> list[str]:
    return _show("qos", _QOS)


def _show(what: str, columns: Iterable[str], *words: str) -> list[str]:
    shown = f"format={','.join(columns)}"
    return ["sacctmgr", "--noheader", "--parsable2", "show", what, *words, shown]


def limits(associations: str, qos: str) -> dict[str, Any]:
    """``accounts``, ``qos`` the user may use, ``limits``; the smallest limit where several apply.

    A limit of None: none is set. ``limits["by_qos"]``: the queue limits that only a qos brings.
    """
    mine = _rows(associations, _ASSOCIATION)
    accounts = list(dict.fromkeys(row["Account"] for row in mine))
    allowed = list(dict.fromkeys(q for row in mine for q in row["QOS"].split(",") if q))
    by_qos = {
        row["Name"]: low
        for row in _rows(qos, _QOS)
        if row["Name"] in allowed
        and (low := _lowest(row[key] for key in ("MaxSubmitPU", "MaxSubmitPA", "GrpSubmit"))) is not None
    }
    return {
        "accounts": accounts,
        "qos": allowed,
        "limits": {
            "max_submit_jobs": _lowest(row[k] for row in mine for k in ("MaxSubmit", "GrpSubmit")),
            "max_jobs": _lowest(row["MaxJobs"] for row in mine),
            "by_qos": by_qos,
        },
    }


def _rows(output: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    rows = (line.split("|") for line in output.splitlines())
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def _lowest(values: Iterable[str]) -> int | None:
    given = [n for value in values if (n := fields.number(value)) is not None]
    return min(given, default=None)
