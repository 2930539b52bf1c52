"""A mapping from stage.json, whatever is in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.preflight import Settings

_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_what_is_asked_for() -> None:
    data = {"run": False, "timeout": 5, "skip": ["shm"], "site": ["/opt/check"]}
    assert Settings.read(data) == Settings(False, 5.0, frozenset({"shm"}), ("/opt/check",))


@given(st.fixed_dictionaries(dict.fromkeys(("run", "timeout", "skip", "site"), _ANY)))
def test_nonsense_never_raises_and_keeps_a_bound(data: dict[str, Any]) -> None:
    settings = Settings.read(data)
    assert math.isfinite(settings.timeout) and settings.timeout > 0
    assert isinstance(settings.run, bool) and all(settings.site)


@pytest.mark.parametrize("data", [None, [], "text", 5, {}])
def test_no_mapping_is_the_default(data: Any) -> None:
    assert Settings.read(data) == Settings()


@pytest.mark.parametrize("timeout", [0, -3, float("nan"), "thirty", True, 10**400])
def test_a_senseless_timeout_is_the_default(timeout: Any) -> None:
    assert Settings.read({"timeout": timeout}).timeout == Settings().timeout
