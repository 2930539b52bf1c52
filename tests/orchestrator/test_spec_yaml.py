"""YAML as this project reads it: no objects, no surprises, a line for every key."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.spec import yaml_source
from orchestrator.spec.errors import Fault
from resiliency.errors import SpecError


def refused(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        yaml_source.parse(text, "f")
    (fault,) = caught.value.faults
    assert isinstance(fault, Fault)
    return f"{fault.where}: {fault.message}; {fault.expected}"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-4", 1e-4),
        ("3.0e-4", 3e-4),
        ("1E6", 1e6),
        (".5", 0.5),
        ("200_000", 200000),
        ("0x10", 16),
        ("0123", "0123"),
        ("4:00:00", "4:00:00"),
        ("2026-01-01", "2026-01-01"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
    ],
)
def test_plain_values(written: str, value: object) -> None:
    got = yaml_source.parse(written, "f").data
    assert got == value and type(got) is type(value)


def test_every_key_and_item_has_its_line() -> None:
    source = yaml_source.parse("a:\n  b: 1\n  c:\n  - x\n  - {d: 2}\n", "f")
    assert source.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    assert source.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }


def test_merge_keys_keep_the_lines_of_the_anchor() -> None:
    text = "base: &b {x: 1, y: {z: 2}}\nmine:\n  <<: *b\n  x: 3\n"
    source = yaml_source.parse(text, "f")
    assert source.data["mine"] == {"x": 3, "y": {"z": 2}}
    assert source.lines[("mine", "x")] == 4
    assert source.lines[("mine", "y", "z")] == 1
    assert not source.faults


def test_of_several_merged_mappings_the_first_wins() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}\n"
    assert yaml_source.parse(text, "f").data["c"] == {"x": 1, "y": 2}


def test_duplicate_keys_are_faults_that_name_both_lines() -> None:
    source = yaml_source.parse("a: 1\nb: 2\na: 3\n", "f")
    assert [(f.line, f.key, f.message) for f in source.faults] == [(3, "a", "given twice (first on line 1)")]
    assert source.data["a"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system",
        "a: !!python/object/new:os.system [echo]",
        "a: !!binary aGk=",
        "a: !!timestamp 2026-01-01",
        "a: !env HOME",
    ],
)
def test_tags_construct_nothing(text: str) -> None:
    source = yaml_source.parse(text, "f")
    assert source.faults
    assert "tag" in source.faults[0].message


@pytest.mark.parametrize("text", ["1: x", "true: x", "null: x", "[a]: x", "{a: 1}: x", "? [a]\n: 1"])
def test_keys_are_words(text: str) -> None:
    assert "cannot be a key" in yaml_source.parse(text, "f").faults[0].message


@pytest.mark.parametrize("text", ['a: "x\\0y"', 'a: "\\ud800"', '"a\\0": 1'])
def test_characters_that_no_file_can_carry_are_faults(text: str) -> None:
    assert "cannot be written" in yaml_source.parse(text, "f").faults[0].message


@pytest.mark.parametrize(
    "text", ["a: .inf", "a: .nan", "a: 1e999", "a: 99999999999999999999", "a: " + "9" * 5000]
)
def test_numbers_that_cannot_be_kept_are_faults(text: str) -> None:
    assert "number" in yaml_source.parse(text, "f").faults[0].message


def test_syntax_errors_name_the_line_and_the_way_out() -> None:
    assert refused("a: 1\n\tb: 2\n") == "f:2: not YAML: a tab is used for indentation; spaces"
    assert refused("a: b: c\n").startswith("f:1: not YAML: mapping values")
    assert "no second '---'" in refused("a: 1\n---\nb: 2\n")
    assert refused("x: {lr: ${vars.lr}}").endswith("quotes around ${…} inside { }")


def test_an_alias_bomb_is_refused_at_once() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 12):
        text += f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n"
    began = time.process_time()
    assert "once aliases are expanded" in refused(text)
    assert time.process_time() - began < 20  # it would not end at all


def test_a_merge_bomb_is_refused() -> None:
    text = "m0: &m0 {k: 1}\n"
    for n in range(1, 30):
        text += f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 4)}], k{n}: 1}}\n"
    assert "once aliases are expanded" in refused(text)


def test_aliases_that_contain_themselves_are_refused() -> None:
    assert "refers to what contains it" in refused("a: &a [*a]")
    assert "refers to what contains it" in refused("a: &a {<<: *a}")


def test_deep_nesting_is_refused_without_recursion() -> None:
    assert "nested deeper" in refused("[" * 100_000)
    assert "nested deeper" in refused("\n".join(" " * n + "a:" for n in range(500)))


def test_size_and_encoding_are_checked_first() -> None:
    with pytest.raises(SpecError) as caught:
        yaml_source.decode(b"a: 1\nb: \xff\n", "f")
    assert caught.value.faults == (Fault("f", 2, "", "this line is not UTF-8 text"),)
    with pytest.raises(SpecError):
        yaml_source.decode(b"#" * (yaml_source.MAX_BYTES + 1), "f")
    assert yaml_source.decode("\ufeffname: x".encode(), "f") == "name: x"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abc:-[]{}&*!|>'\"%@`#,?<\\x0U \n\t\u0085\u2028é", max_size=80))
def test_any_text_parses_or_is_a_spec_error(text: str) -> None:
    try:
        source = yaml_source.parse(text, "f")
    except SpecError as error:
        assert error.faults
    else:
        assert source.data is None or isinstance(source.data, (dict, list, str, int, float, bool))
