"""``${…}``: plain paths only, and nothing that runs, loops or multiplies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.spec import references
from tests.orchestrator.spec_files import load, one

COMMAND = """\
name: demo
vars: {n: 3, word: hi, list: [a, b]}
stages:
  one:
    kind: command
    run: [echo, VALUE]
"""


def run_of(directory: Path, value: str) -> object:
    return load(directory, COMMAND.replace("VALUE", value)).resolved["stages"]["one"]["run"][1]


def test_references_are_replaced_and_keep_their_type(tmp_path: Path) -> None:
    text = COMMAND.replace("VALUE", '"n=${vars.n} ${vars.list[1]}"')
    text += "    resources: {nodes: '${vars.n}'}\n    env: {A: '${..resources.nodes}'}\n"
    stage = load(tmp_path, text).resolved["stages"]["one"]
    assert stage["run"] == ["echo", "n=3 b"]
    assert stage["resources"]["nodes"] == 3
    assert stage["env"] == {"A": "3"}


def test_a_stage_can_refer_to_a_whole_section_of_another(tmp_path: Path) -> None:
    text = COMMAND.replace("VALUE", "x") + "    resources: {nodes: 2, time: 2h}\n"
    text += "  two: {kind: command, run: [x], resources: '${stages.one.resources}'}\n"
    stages = load(tmp_path, text, "stages.one.resources.nodes=4").resolved["stages"]
    assert stages["two"]["resources"] == stages["one"]["resources"]
    assert stages["two"]["resources"]["nodes"] == 4


def test_defaults_can_be_referred_to_from_any_stage(tmp_path: Path) -> None:
    text = COMMAND.replace("VALUE", '"${stages.one.resources.nodes}"') + "defaults: {resources: {nodes: 5}}\n"
    assert load(tmp_path, text).resolved["stages"]["one"]["run"][1] == "5"


def test_an_escaped_reference_is_the_text_itself(tmp_path: Path) -> None:
    assert run_of(tmp_path, "'\\${vars.n}'") == "${vars.n}"
    assert run_of(tmp_path, "'\\${oc.env:HOME}'") == "${oc.env:HOME}"


@pytest.mark.parametrize(
    "value",
    [
        "${oc.env:HOME}",
        "${oc.env:TM_TEST_SECRET,x}",
        "${oc.decode:'1'}",
        "${oc.create:{a: 1}}",
        "${oc.select:vars.n}",
        "${custom:1}",
        "${ oc.env : HOME }",
        "a ${oc.env:TM_TEST_SECRET} b",
        "${vars.${oc.env:TM_TEST_SECRET}}",
        "${${vars.word}.env:TM_TEST_SECRET}",
        "${oc.${vars.word}:TM_TEST_SECRET}",
        "\\\\${oc.env:TM_TEST_SECRET}",
    ],
)
def test_resolvers_are_refused_and_never_run(
    tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TM_TEST_SECRET", "leaked-value")
    line = one(tmp_path, COMMAND.replace("VALUE", "'" + value.replace("'", "''") + "'"))
    assert line.startswith("exp.yaml:6: stages.one.run[1]: ")
    assert "env_from" in line or "cannot be read" in line
    assert "leaked-value" not in line


def test_a_registered_resolver_is_not_reached(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    called: list[object] = []
    register = getattr(OmegaConf, "register_resolver", OmegaConf.register_new_resolver)
    register("tm_test", lambda *a: called.append(a), replace=True)
    try:
        one(tmp_path, COMMAND.replace("VALUE", "'${tm_test:1}'"))
        one(tmp_path, COMMAND.replace("VALUE", "x"), "stages.one.run=['${tm_test:1}']")
    finally:
        OmegaConf.clear_resolver("tm_test")
    assert called == []


def test_escaping_cannot_smuggle_a_resolver_through_a_second_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TM_TEST_SECRET", "leaked-value")
    text = COMMAND.replace("word: hi", "word: '\\${oc.env:TM_TEST_SECRET}'")
    loaded = load(tmp_path, text.replace("VALUE", "'${vars.word}'"))
    assert os.environ["TM_TEST_SECRET"] not in str(loaded.resolved)
    assert loaded.resolved["stages"]["one"]["run"][1] == "${oc.env:TM_TEST_SECRET}"


def test_what_is_not_in_the_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    line = one(tmp_path, COMMAND.replace("VALUE", "'${vars.wrod}'"))
    assert "${vars.wrod} is not in the file" in line
    assert line.endswith("did you mean 'vars.word'?")


@pytest.mark.parametrize(
    "vars_",
    [
        "{a: '${vars.b}', b: '${vars.a}'}",
        "{a: '${vars.a}'}",
        "{a: {b: '${vars.a}'}}",
        "{a: '${vars}'}",
        "{a: '${vars.a.b}'}",
    ],
)
def test_circles_are_named(tmp_path: Path, vars_: str) -> None:
    text = COMMAND.replace("{n: 3, word: hi, list: [a, b]}", vars_).replace("VALUE", "x")
    assert "circle" in one(tmp_path, text)


def test_references_that_multiply_are_refused(tmp_path: Path) -> None:
    parts = ["v0: 'xxxxxxxxxx'"]
    parts += [f"v{n}: '${{vars.v{n - 1}}}${{vars.v{n - 1}}}${{vars.v{n - 1}}}'" for n in range(1, 25)]
    text = COMMAND.replace("{n: 3, word: hi, list: [a, b]}", "{" + ", ".join(parts) + "}")
    with pytest.raises(Exception) as caught:
        load(tmp_path, text.replace("VALUE", "x"))
    assert any("expand to too much" in str(f) for f in caught.value.faults)  # type: ignore[attr-defined]


def test_targets_finds_absolute_and_relative_paths() -> None:
    at = ("stages", "one", "train", "steps")
    assert references.targets("${a.b[2].c-d} ${.lr} ${..model.x}", at) == [
        ("a", "b", 2, "c-d"),
        ("stages", "one", "train", "lr"),
        ("stages", "one", "model", "x"),
    ]
