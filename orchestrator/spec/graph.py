"""Which stage needs which, on raw values: works on a file that has other faults too. Pure.

``tests/orchestrator/test_spec_graph.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def needs_of(stage: Any) -> list[str]:
    """The needs of one raw stage; what has the wrong type is left to the schema."""
    given = stage.get("needs") if isinstance(stage, Mapping) else None
    given = [given] if isinstance(given, str) else given
    return [n for n in given if isinstance(n, str)] if isinstance(given, list) else []


def cycles(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Every cycle once, each beginning and ending with its alphabetically first stage."""
    found: list[list[str]] = []
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        # Depth-first with an explicit stack: a file may chain more stages than Python can recurse.
        stack: list[tuple[str, Iterable[str]]] = [(start, iter(needs.get(start, ())))]
        path.append(start)
        while stack:
            name, rest = stack[-1]
            for other in rest:
                if other in path:
                    ring = path[path.index(other) :]
                    first = ring.index(min(ring))
                    ring = ring[first:] + ring[:first]
                    if [*ring, ring[0]] not in found:
                        found.append([*ring, ring[0]])
                elif other in needs and other not in done:
                    stack.append((other, iter(needs[other])))
                    path.append(other)
                    break
            else:
                done.add(name)
                stack.pop()
                path.pop()
    return found


def in_order(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Stages with what they need first, otherwise in the file's order. For a graph without cycles."""
    ordered: list[str] = []
    left = list(needs)
    while left:
        ready = [n for n in left if all(o in ordered or o not in needs for o in needs[n])]
        if not ready:
            raise ValueError("the stages need each other in a circle")
        ordered.append(ready[0])
        left.remove(ready[0])
    return ordered


def above(name: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Everything ``name`` needs, directly or not."""
    seen: set[str] = set()
    todo = list(needs.get(name, ()))
    while todo:
        other = todo.pop()
        if other not in seen:
            seen.add(other)
            todo += needs.get(other, ())
    return seen


def data_stage(name: str, stages: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The text stage whose dataset a pretrain or eval stage reads; None when that is not decided."""
    stage = stages[name]
    if stage.get("data") is not None:
        return str(stage["data"])
    direct = _needed_of_kind(stage, stages, "text")
    if len(direct) == 1:
        return direct[0]
    if stage.get("kind") == "eval" and not direct:
        trained = model_stage(name, stages)
        if trained is not None and trained in stages and trained != name:
            return data_stage(trained, stages)
    return None


def model_stage(name: str, stages: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The pretrain stage an eval stage evaluates; None when that is not decided."""
    stage = stages[name]
    if isinstance(stage.get("model"), str):
        return str(stage["model"])
    direct = _needed_of_kind(stage, stages, "pretrain")
    return direct[0] if len(direct) == 1 else None


def _needed_of_kind(
    stage: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], kind: str
) -> list[str]:
    needs = dict.fromkeys(needs_of(stage))
    return [n for n in needs if isinstance(stages.get(n), Mapping) and stages[n].get("kind") == kind]
