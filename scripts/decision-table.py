#!/usr/bin/env python3
"""Write docs/decisions.md from the decision table: `scripts/decision-table.py [--check]`.

A test runs it with --check, so that the page cannot say anything but what the policy does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from resiliency.decision_rows import FIRST, PLACES, rows  # noqa: E402
from resiliency.policy import SURE, Budgets  # noqa: E402
from resiliency.taxonomy import CATEGORIES  # noqa: E402

PAGE = ROOT / "docs/decisions.md"
_DEFAULT = Budgets()
INTRO = f"""\
# Decisions

What is done about a failure is said by one pure function, `decide(verdict, history, budgets, capacity)`
in `resiliency/policy.py`: the allocation, the login node and a rehearsal ask the same one. This page is
written by `scripts/decision-table.py` from `resiliency/decision_rows.py`; each row is a test.

- **restart_in_job**: the ranks start again in the same allocation. **swap_node**: the same, a spare takes
  the node's place. **shrink**: the same, with fewer nodes. **rollback_checkpoint**: the same or the next
  link, from the checkpoint before. **requeue**: the allocation is given back, the next link goes on;
  **requeue_excluding**: not on that node. **hold**: waits for a person, nothing is lost. **stop**: trying
  again would burn an allocation.
- Budgets count cycles (restarts in an allocation) and attempts (allocations) alike, "in a row" means
  since a checkpoint was saved past the one they started from. Defaults: {_DEFAULT.unexplained}
  unexplained, {_DEFAULT.no_progress} without progress, {_DEFAULT.launch} launches,
  {_DEFAULT.same_signature} with one signature at one step. Time limits, preemptions and lost nodes use
  none of them.
- Nothing loops for ever: restarts in a job are counted (`recovery.restarts_in_job`), each swap or shrink
  uses up a node, a restart needs time that is left, and what saves nothing runs into a budget.
- A node is kept out of later allocations only by a fault that is provably the node's, named by a verdict
  at least {SURE:.0%} sure; or by a quorum of different jobs ([nodes](#which-nodes-are-kept-out)).
- The same failure at the same step stops by its second time. One exception: a failure that a broken node
  can cause (a hang, a crash of the framework, a collective that times out, a GPU or network fault without
  proof), that showed on one node only, while a spare is idle. Then the spare takes the node's place and
  one more cycle tells the node from the work; at a third time it stops. Exceptions of the program get no
  such try.
- With `recovery.shadow` decisions are journaled and nothing is restarted, swapped or excluded: a failure
  ends the attempt and the next link goes on, as without any of this.
"""

NODES = """\
## Which nodes are kept out
| what is known | kept out | for |
|---|---|---|
| a person: `nodes exclude NODE --reason …` | yes, of all runs on that cluster | `--until`, 7 days \
by default |
| a verdict of a category that is provably the node's, or a check of the nodes that proves one | \
yes, of all runs | `recovery.exclusion.days` from the failure |
| failures that prove nothing, of `quorum` different jobs on one node within 28 days | yes, of all \
runs | the same, from the last of them |
| … that the same run also had on other nodes | no: it follows the work | |
| … of a job that had this one node only | its run counts once, however often it tried | |
| exit 16 on a node | of this stage's next link; of all runs once the work got past that step \
elsewhere | the same |
| memory, disk, quota, configuration, data, code, unexplained exits | no | |

`nodes readmit NODE` ends it at once and forgets what was held against the node. A job is kept off
excluded nodes only as far as it can be: never so that fewer than it needs are left, and, but for a
person's word and the nodes its own stage just lost, never more than `recovery.exclusion.max_share` of the
partition; the weakest and oldest are dropped first, and it is said. Where it is not known how many nodes
there are (the scheduler does not say; a constraint or a reservation leaves fewer), only a person's word
counts.
"""


def document() -> str:
    """The whole page."""
    return "\n".join([INTRO, _first(), *_groups(), NODES])


def _first() -> str:
    """One line a category: what a first failure leads to, wherever it happens."""
    lines = ["## A first failure", ""]
    lines += [f"- **{name}**: {about}." for name, (about, _) in PLACES.items()]
    lines += ["", "A verdict that names a node, and nothing used up yet:", ""]
    heads = ["category", "means", "budget", *PLACES]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in CATEGORIES.values():
        cells = [f"`{row.name}`", row.phrase, row.budget.value, *FIRST[row.name]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_HEAD = "| verdict | situation | action | rule | kept out |"


def _groups() -> list[str]:
    pages: dict[str, list[str]] = {}
    for row in rows():
        lines = pages.setdefault(
            row.group,
            [
                f"## {row.group}",
                "",
                "| verdict | situation | action | rule | kept out |",
                "|---|---|---|---|---|",
            ],
        )
        out = ", ".join(row.exclude)
        lines.append(f"| `{row.verdict.category}` | {row.situation} | {row.action} | `{row.rule}` | {out} |")
    return ["\n".join(lines) + "\n" for lines in pages.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if docs/decisions.md differs")
    check, text = parser.parse_args().check, document()
    if check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/decisions.md is not the table: run scripts/decision-table.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
