"""docs/statistics.md: its examples print what they say, its tables are the code's."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from metrics.stats.lemons import Policy
from metrics.stats.prior import LEMON_MEAN, LEMON_SHAPE, MOST_LEMONS, SHAPES
from metrics.stats.repairs import RELAPSE_DAYS, STATES
from metrics.stats.signals import LEAST_NODES, QUANTILE, SIGNALS, WINDOW_DAYS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "statistics.md"
TEXT = PAGE.read_text()


def test_examples() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.FAIL_FAST)
    assert tried >= 12
    assert failed == 0


def test_settings() -> None:
    policy = Policy()
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", TEXT, flags=re.M))
    assert {name: float(value) for name, value in told.items()} == {
        name: getattr(policy, name) for name in ("factor", "fdr", "least_failures", "least_nodes")
    }


def test_signals() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (yes|no)", TEXT, flags=re.M)
    assert rows == [(one.name, one.meaning, "yes" if one.counts else "no") for one in SIGNALS.values()]


def test_constants() -> None:
    assert f"Gamma({LEMON_SHAPE:g}, mean {LEMON_MEAN:g} μ)" in TEXT
    assert MOST_LEMONS == 0.2 and "never over a fifth" in TEXT
    assert (
        f"from {SHAPES[0]:g} (healthy" in TEXT and f"to {SHAPES[-1]:g} (by 3 %)" in TEXT and len(SHAPES) == 6
    )
    assert f"over what {QUANTILE:.0%} of".replace("%", " %") in TEXT
    assert f"fewer than {LEAST_NODES} such nodes" in TEXT
    assert f"each over {WINDOW_DAYS:g} days" in TEXT
    assert f"within {RELAPSE_DAYS:g} days" in TEXT
    assert all(f"`{state}`" in TEXT for state in STATES)
