"""The quick reader of lines: the standard library's answers, or none."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resiliency.events import BadEvent, Event, decode, decode_slowly, encode
from resiliency.lines import FIELDS, loads, parts, parts_as_text
from tests.resiliency.test_events import events, sealed

_numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([-0.0, 1e16, 1e-5, 1e-7, 2**53 + 1])
_values = st.none() | st.booleans() | _numbers | st.text(max_size=5) | st.just([[{}]])
_data = st.dictionaries(st.text(max_size=4), _values, max_size=4)
_any = _values | _data
#: Objects whose fields may be anything, in any order, twice, or missing.
_objects = st.lists(
    st.tuples(
        st.sampled_from([*FIELDS, "data", "crc", "later"]),
        _any,
    ),
    max_size=6,
)
_SOUND = {"type": "x", "run": "r", "writer": "w", "seq": 1, "ts": 1.0, "mono": 1.0}


def body(pairs: list[tuple[str, Any]], *, ascii: bool, gap: str) -> str:
    """The object's text but for its last brace; ``pairs`` may repeat a name."""
    said = [f"{json.dumps(k)}:{gap}{json.dumps(v, ensure_ascii=ascii)}" for k, v in pairs]
    return "{" + f",{gap}".join(said)


def slowly(line: bytes) -> Event | None:
    try:
        return decode_slowly(line)
    except BadEvent:
        return None


def same(one: Any, other: Any) -> bool:
    """Equal down to the type of each number and the sign of zero."""
    return repr(one) == repr(other)


@given(_objects, st.booleans(), st.booleans(), st.sampled_from(["", " ", "\t"]))
@example([("data", {"a": 1}), ("data", {"b": 2})], True, True, "")
@example([("ts", -0.0), ("cycle", True)], True, True, "")
def test_what_it_reads_is_what_the_standard_library_reads(
    pairs: list[tuple[str, Any]], whole: bool, ascii: bool, gap: str
) -> None:
    text = body([*(_SOUND.items() if whole else ()), *pairs], ascii=ascii, gap=gap)
    line = sealed(text.encode("utf-8", "surrogatepass"))
    found, wanted = parts(line), slowly(line)
    if found is not None:
        (run, writer, seq, ts, mono, kind, stage, attempt, cycle, node, rank, v), data = found
        mine = Event(kind, run, writer, seq, ts, mono, stage, attempt, cycle, node, rank, data, v)
        assert same(mine, wanted)
    told = parts_as_text(line)
    if told is not None:
        assert wanted is not None and same(told[1], wanted.data)
        assert found is not None and same(told[0][:-1], found[0])
        assert told[0][-1].isascii() and same(json.loads(told[0][-1]), dict(wanted.data))


@given(events)
def test_a_line_that_we_write_gives_the_same_event_and_text_either_way(event: Event) -> None:
    line = encode(event).encode()
    assert same(decode(line), decode_slowly(line))
    told = parts_as_text(line)
    if told is not None:
        assert told[0][-1] == json.dumps(dict(event.data), separators=(",", ":"))


def test_the_usual_line_is_read_quickly() -> None:
    spent = {"step": 1.25, "data": 0.000031}
    data = {"step": 7, "loss": 2.0000000000000004, "tokens": 4096, "section": "step", "spent": spent}
    event = Event("progress", "r", "w", 1, 1.5, 2.0, "train", "c1/7.0", 0, "n1", 0, data)
    told = parts_as_text(encode(event).encode())
    assert told is not None and told[1] == data
    assert told[0] == (
        *("r", "w", 1, 1.5, 2.0, "progress", "train", "c1/7.0", 0, "n1", 0, 1),
        json.dumps(data, separators=(",", ":")),
    )


@pytest.mark.parametrize(
    "rest",
    [
        b',"later":"\xff"',
        b',"data":{"a":"\x01"}',
        b',"data":{"a":01}',
        b',"data":{"a":"\\x"}',
        b',"data":{"a":' + b"[" * 100_000,
        b',"v":99999999999999999999',
        b',"seq":1.0',
        b',"stage":"\xed\xa0\x80"',
    ],
)
def test_what_is_no_sound_json_is_refused(rest: bytes) -> None:
    raw = body(list(_SOUND.items()), ascii=True, gap="").encode() + rest
    line = raw + b',"crc":"%08x"}' % zlib.crc32(raw)
    assert parts(line) is None and parts_as_text(line) is None
    with pytest.raises(BadEvent):
        decode(line)


def test_a_wrong_checksum_is_no_line() -> None:
    line = encode(Event("x", "r", "w", 1, 1.0, 1.0)).encode()
    for altered in (line.replace(b'"x"', b'"y"'), line[:-3] + b'z"}', line[1:], b"", line + b" "):
        assert parts(altered) is None and parts_as_text(altered) is None


def test_text_of_a_sound_value_is_read_whatever_it_holds() -> None:
    for value in ({"a": 2**70}, {"a": "\ud800"}, {"a": -0.0}, [[[1]]]):
        assert same(loads(json.dumps(value)), value)


def test_without_msgspec_the_answers_are_the_same() -> None:
    code = """
import sys
sys.modules["msgspec"] = None
from resiliency.events import Event, decode, encode
from resiliency.lines import FIELDS, loads, parts, parts_as_text
event = Event("x", "r", "w", 1, 1.0, 2.0, data={"a": [1, 2.5]})
line = encode(event).encode()
assert parts(line) is None and parts_as_text(line) is None
assert decode(line) == event and loads('{"a": 1}') == {"a": 1}
print("same")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "same"), done.stderr
