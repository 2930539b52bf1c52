"""What a person is shown of cycles: restarts with their causes, spares, swapped nodes."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from orchestrator.cli.show import run_data
from orchestrator.cli.table import run_table
from resiliency.events import Event
from tests.orchestrator.builders import RUN, Chain, Story


def story() -> Story:
    told = (
        Story([Chain("train")]).accepted("train", 1, "1").observed("train", 1, "1", "RUNNING", nodes="n[1-3]")
    )
    told.inside("attempt.started", "train", "1", {"token": f"{RUN}.train.001", "nodes": "n[1-3]"})

    def say(kind: str, cycle: int, **data: Any) -> None:
        told.now += 1
        seq = len(told.events) + 100
        told.events.append(
            Event(kind, RUN, "sup", seq, told.now, told.now, "train", "c/1.0", cycle, data=data)
        )

    say("cycle.started", 0, nodes=["n1", "n2"], spares=["n3"])
    say("decision", 0, action="swap_node", rule="in-job:spare")
    say("node.lost", 0, node="n2", reason="gone")
    say("cycle.ended", 0, category="node_down", node="n2", reason="node n2 was lost", step=7, continued=True)
    say("node.swapped", 1, out="n2", **{"in": "n3"})
    say("cycle.started", 1, nodes=["n1", "n3"], spares=[])
    say("cycle.ended", 1, category="hang", reason="no progress", step=9, continued=True)
    say("cycle.started", 2, nodes=["n1", "n3"], spares=["n4"])
    return told


def test_restarts_and_spares_are_in_the_table() -> None:
    console = Console(width=200, record=True)
    console.print(run_table(story().state))
    text = console.export_text()
    assert "restarted 2 times: node_down (n2), hang" in text
    assert "n[1-3] (1 spare)" in text


def test_cycles_are_in_the_json() -> None:
    (attempt,) = json.loads(json.dumps(run_data(story().state)))["stages"][0]["attempts"]
    assert attempt["lost_nodes"] == ["n2"]
    first, second, third = attempt["cycles"]
    assert (first["category"], first["node"], first["action"], first["continued"]) == (
        "node_down", "n2", "swap_node", True,
    )  # fmt: skip
    assert (second["swapped"], second["nodes"]) == ({"n2": "n3"}, ["n1", "n3"])
    assert (third["spares"], third["continued"], third["category"]) == (["n4"], False, None)
