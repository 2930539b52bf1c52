"""Overrides as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.spec import overrides
from resiliency.errors import SpecError
from tests.orchestrator.spec_files import GOOD, lines, load, one


def trained(directory: Path, *given: str) -> dict[str, object]:
    result: dict[str, object] = load(directory, GOOD, *given).resolved["stages"]["train"]
    return result


@pytest.mark.parametrize(
    ("typed", "section", "key", "value"),
    [
        ("stages.train.train.lr=1e-4", "train", "lr", 1e-4),
        ("stages.train.train.steps=1e3", "train", "steps", 1000),
        ("stages.train.train.steps=7", "train", "steps", 7),
        ("stages.train.checkpoint.async=true", "checkpoint", "async", True),
        ("stages.train.checkpoint.interval=auto", "checkpoint", "interval", None),
        ("stages.train.train={lr: 1, seed: 3}", "train", "lr", 1.0),
        ("stages.train.resources.time=2h", "resources", "time", "02:00:00"),
        ("defaults.resources.partition=gpu", "resources", "partition", "gpu"),
        ("stages.train.resources.exclude=[a1, a2]", "resources", "exclude", ["a1", "a2"]),
        ("stages.train.model.num_layers=8", "model", "num_layers", 8),
    ],
)
def test_values_have_the_type_they_look_like(
    tmp_path: Path, typed: str, section: str, key: str, value: object
) -> None:
    got = trained(tmp_path, typed)[section][key]  # type: ignore[index]
    assert got == value and type(got) is type(value)


def test_mappings_are_merged_and_lists_replaced(tmp_path: Path) -> None:
    text = GOOD + "    env: {A: '1', B: '2'}\n    env_from: [X]\n"
    stage = load(tmp_path, text, "stages.train.env={B: 3}", "stages.train.env_from=[Y]").resolved
    assert stage["stages"]["train"]["env"] == {"A": "1", "B": "3"}
    assert stage["stages"]["train"]["env_from"] == ["Y"]


def test_null_removes(tmp_path: Path) -> None:
    text = GOOD + "defaults: {env: {A: '1', B: '2'}, resources: {partition: gpu}}\n"
    overrides_ = ("stages.train.env.A=null", "stages.train.resources.partition=null")
    stage = load(tmp_path, text, *overrides_).resolved["stages"]["train"]
    assert stage["env"] == {"B": "2"}
    assert stage["resources"]["partition"] is None


def test_a_later_override_wins(tmp_path: Path) -> None:
    got = trained(tmp_path, "stages.train.train.lr=1", "stages.train.train.lr=2")
    assert got["train"]["lr"] == 2.0  # type: ignore[index]


def test_items_of_lists_can_be_set(tmp_path: Path) -> None:
    text = "name: x\nstages: {c: {kind: command, run: [a, b]}}\n"
    got = load(tmp_path, text, "stages.c.run[1]=c", "stages.c.run.0=d").resolved
    assert got["stages"]["c"]["run"] == ["d", "c"]
    assert "is none of its items" in one(tmp_path, text, "stages.c.run[7]=c")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("stages.train.train.lrr=1", "stages.train.train.lrr: unknown key; did you mean 'lr'?"),
        ("stages.train.trian.lr=1", "stages.train.trian: unknown key; did you mean 'train'?"),
        (
            "stages.train.train.steps=many",
            "stages.train.train.steps: 'many' has the wrong type; expected a whole number",
        ),
        ("name.x=1", "name.x: name is a single value, it has no 'x'"),
    ],
)
def test_a_fault_names_the_override_that_brought_it(tmp_path: Path, typed: str, said: str) -> None:
    assert one(tmp_path, GOOD, typed) == f"override {typed}: {said}"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("stages.train.train.lr", "there is no '='"),
        ("=1", "'' is not a key"),
        ("a b=1", "'a b' is not a key"),
        ("a..b=1", "'a..b' is not a key"),
        ("+a.b=1", "'+' before the key is not needed here"),
        ("~a.b=1", "'~' before the key is not needed here"),
        ("a=[1, 2", "the value cannot be read"),
        ("a=!!python/name:os.system", "the value cannot be read"),
    ],
)
def test_what_is_no_override_is_said_so(tmp_path: Path, typed: str, said: str) -> None:
    line = one(tmp_path, GOOD, typed)
    assert line.startswith(f"override {typed}") and said in line


def test_all_bad_overrides_are_named_together_with_the_faults_of_the_file(tmp_path: Path) -> None:
    found = lines(tmp_path, GOOD.replace("steps", "stesp"), "x", "stages.data.vocab_size=1")
    assert [line.split(":")[0] for line in found] == [
        "exp.yaml",
        "exp.yaml",
        "override x",
        "override stages.data.vocab_size=1",
    ]


def test_an_override_never_changes_what_a_reference_points_to(tmp_path: Path) -> None:
    text = (
        GOOD
        + "  more: {kind: pretrain, needs: data, model: {preset: tiny}, train: '${stages.train.train}'}\n"
    )
    line = one(tmp_path, text, "stages.more.train.steps=3")
    assert "stages.more.train is a reference" in line
    whole = load(tmp_path, text, "stages.more.train={steps: 3}").resolved["stages"]
    assert (whole["more"]["train"]["steps"], whole["train"]["train"]["steps"]) == (3, 20)


def test_references_work_in_overrides(tmp_path: Path) -> None:
    got = trained(
        tmp_path, "stages.train.train.warmup_steps=${.log_interval}", "stages.train.train.log_interval=4"
    )
    assert got["train"]["warmup_steps"] == 4  # type: ignore[index]


def test_a_secret_value_is_not_repeated(tmp_path: Path) -> None:
    secret = "hf_" + "a1B2" * 9
    found = lines(tmp_path, GOOD, f"stages.train.env.HF_TOKEN={secret}", f"name={secret}")
    assert len(found) >= 2 and not any(secret in line for line in found)
    found = lines(tmp_path, GOOD, "stages.train.env.MY_PASSWORD=hunter22", "x.y=3")
    assert not any("hunter22" in line for line in found)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_an_override_or_a_spec_error(text: str) -> None:
    try:
        one_ = overrides.parse(text)
    except SpecError as error:
        assert error.faults
    else:
        assert one_.path
