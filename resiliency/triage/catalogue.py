"""The Xid and SXid catalogues: what a code means, from ``resiliency/signatures/catalogue-*.yaml``.

``tests/resiliency/triage/test_reading.py`` checks that every row has a source and a known category.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .signatures import DIRECTORY, _yaml

#: Xid 154 says which recovery the driver asks for; source: NVIDIA Xid catalogue, row 154.
RECOVERY = {
    "None": "nothing",
    "GPU Reset Required": "reset the GPU",
    "Node Reboot Required": "reboot the node",
    "Drain P2P": "drain the node's peer-to-peer traffic",
    "Drain and Reset": "drain the node, then reset the GPU",
}


@lru_cache(maxsize=1)
def xids() -> dict[int, dict[str, Any]]:
    return {row["code"]: row for row in _yaml(DIRECTORY / "catalogue-xid.yaml")["rows"]}


@lru_cache(maxsize=1)
def sxids() -> dict[int, dict[str, Any]]:
    return {row["code"]: row for row in _yaml(DIRECTORY / "catalogue-sxid.yaml")["rows"]}
