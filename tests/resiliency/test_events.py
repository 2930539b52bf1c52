"""Events: what is written is read back, any alteration is noticed, the catalogue is complete."""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resiliency.events import TYPES, BadEvent, Event, decode, encode

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "launch", "models", "metrics", "resiliency")

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_times = st.floats(0, 4e9).map(lambda ts: round(ts, 6))
events = st.builds(
    Event,
    type=st.sampled_from([*TYPES, "from.later"]),
    run=_text,
    writer=_text,
    seq=st.integers(0, 2**63 - 1),
    ts=_times,
    mono=_times,
    stage=st.none() | _text,
    attempt=st.none() | _text,
    cycle=st.none() | st.integers(0, 99),
    node=st.none() | _text,
    rank=st.none() | st.integers(0, 10**6),
    data=st.dictionaries(_text, _json, max_size=4),
)


@given(events)
@example(Event("x", 'a"b\\c\n', "\u2028λ\x00", 1, 0.1, 0.0, data={"crc": ',"crc":"00000000"}'}))
def test_what_is_written_is_read_back(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line and line.isascii()
    assert decode(line) == decode(line.encode() + b"\r\n") == event


@given(events, st.data())
def test_any_flipped_bit_is_noticed(event: Event, data: st.DataObject) -> None:
    raw = bytearray(encode(event).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadEvent):
        decode(bytes(raw))


@given(events, st.data())
def test_any_torn_line_is_noticed(event: Event, data: st.DataObject) -> None:
    raw = encode(event).encode()
    with pytest.raises(BadEvent):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(events, events)
def test_two_lines_run_together_are_noticed(one: Event, other: Event) -> None:
    with pytest.raises(BadEvent):
        decode(encode(one) + encode(other))


@given(st.binary(max_size=200))
def test_any_bytes_give_an_event_or_bad_event(raw: bytes) -> None:
    with pytest.raises(BadEvent):
        decode(raw)


def sealed(body: str | bytes) -> bytes:
    """A line whose checksum is right, whatever it says."""
    raw = body.encode() if isinstance(body, str) else body
    return raw + b',"crc":"%08x"}' % zlib.crc32(raw)


GOOD = '{"type":"x","run":"r","writer":"w","seq":1,"ts":1.0'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[1",
        '{"type":"x"',
        '{"type":"x","run":"r","writer":"w","seq":"no","ts":1',
        '{"type":"x","run":"r","writer":"w","seq":1e999,"ts":1',
        '{"type":"x","run":"r","writer":"w","seq":99999999999999999999,"ts":1',
        '{"type":"x","run":"r","writer":"w","seq":1,"ts":NaN',
        '{"type":"x","run":"r","writer":"w","seq":1,"ts":1e999',
        GOOD + ',"data":[1]',
        GOOD + ',"data":{"a":Infinity}',
        GOOD + ',"stage":["a"]',
        GOOD + ',"node":{}',
        GOOD + ',"rank":"0"',
        GOOD + ',"cycle":1.5',
        GOOD + ',"v":99999999999999999999',
        GOOD + ',"stage":"\\ud800"',
        GOOD + ',"data":' + "[" * 100_000,
    ],
    ids=range(17),
)
def test_an_intact_line_that_makes_no_sense_is_bad_too(body: str) -> None:
    with pytest.raises(BadEvent):
        decode(sealed(body))


def test_fields_of_a_later_version_are_passed_over() -> None:
    event = decode(sealed(GOOD + ',"v":1,"later":[1],"data":null'))
    assert (event.type, event.seq, event.data, event.stage) == ("x", 1, {}, None)


def test_nan_cannot_be_written_silently() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode(Event("x", "r", "w", 1, 1.0, 1.0, data={"loss": float("nan")}))


_PREFIXES = "|".join(sorted({name.split(".")[0] for name in TYPES if "." in name}))
_LOOKS_LIKE_A_TYPE = re.compile(rf"(?:{_PREFIXES})\.[a-z_]+")
_FILES = {".json", ".jsonl", ".lock", ".log", ".py", ".db", ".yaml", ".yml", ".sh", ".txt", ".db-journal"}
#: Functions that take dotted words which are no events: crash points, keys of a configuration.
_OTHERS = {"point", "_number"}


def _emitted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every word in the code that looks like an event's type, and what is handed to ``append``."""
    passed_over: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OTHERS:
            passed_over |= set(node.args)
        if isinstance(node, ast.Call):  # a place in a program where a rehearsal may do harm
            passed_over |= {given.value for given in node.keywords if given.arg == "point"}
            if isinstance(node.func, ast.Attribute) and node.func.attr == "at_point":
                passed_over |= set(node.args)
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        likely = _LOOKS_LIKE_A_TYPE.fullmatch(node.value) and Path(node.value).suffix not in _FILES
        if likely and node not in passed_over:
            yield node.lineno, node.value
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
            first = node.args[0]
            if node.func.attr == "append" and isinstance(first, ast.Constant):
                yield first.lineno, str(first.value)


def test_every_type_that_code_emits_is_in_the_catalogue() -> None:
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for line, name in _emitted(tree):
                found[name] = f"{path.relative_to(ROOT)}:{line}"
    # The search itself works: these are emitted for certain.
    assert {"run.created", "submission.intent", "progress", "attempt.started"} <= set(found)
    assert {name: place for name, place in found.items() if name not in TYPES} == {}


def test_the_catalogue_describes_each_type() -> None:
    for name, text in TYPES.items():
        assert re.fullmatch(r"[a-z]+(\.[a-z]+)?", name) and text
