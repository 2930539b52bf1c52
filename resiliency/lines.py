"""The usual journal line into its parts by msgspec: several times quicker, and never with another answer.

Whatever is unusual (a wrong checksum, a field of a later version, ``data`` that is null, a number out of
range, half a character) is None here, and so is every line where msgspec is not installed: then
:func:`resiliency.events.decode` reads it with the standard library and says what is wrong.
``tests/resiliency/test_lines.py`` holds both ways to the same answers.
"""

from __future__ import annotations

import json
import zlib
from typing import Annotated, Any, Final

Parts = tuple[Any, ...]

#: The order of a line's parts; ``data`` follows them.
FIELDS: Final = (
    *("run", "writer", "seq", "ts", "mono", "type", "stage", "attempt", "cycle", "node", "rank", "v"),
)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode

try:
    import msgspec
except ImportError:  # a container with no more than training needs

    def parts(line: bytes) -> tuple[Parts, dict[str, Any]] | None:
        return None

    def parts_as_text(line: bytes) -> tuple[Parts, dict[str, Any]] | None:
        return None

    def loads(text: str) -> Any:
        """The value of JSON text that is known to be sound."""
        return json.loads(text)

else:
    _Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

    class _Named(msgspec.Struct, forbid_unknown_fields=True, gc=False):
        run: str
        writer: str
        seq: _Whole
        ts: float
        mono: float
        type: str
        stage: str | None = None
        attempt: str | None = None
        cycle: _Whole | None = None
        node: str | None = None
        rank: _Whole | None = None
        v: _Whole = 1

    class _Line(_Named, forbid_unknown_fields=True, gc=False):
        data: dict[str, Any] = {}
        crc: str = ""

    class _Raw(_Named, forbid_unknown_fields=True, gc=False):
        data: msgspec.Raw = msgspec.Raw(b"{}")
        crc: str = ""

    _line = msgspec.json.Decoder(_Line).decode
    _raw = msgspec.json.Decoder(_Raw).decode
    _data = msgspec.json.Decoder(dict[str, Any]).decode
    _any = msgspec.json.Decoder().decode
    _encode = msgspec.json.Encoder().encode
    _tuple = msgspec.structs.astuple
    _crc32 = zlib.crc32

    def parts(line: bytes) -> tuple[Parts, dict[str, Any]] | None:
        """``(values of FIELDS, data)`` of a line, or None when it is not of the usual kind."""
        if line[-18:] != b',"crc":"%08x"}' % _crc32(line[:-18]):
            return None
        try:
            found = _tuple(_line(line))
        except (msgspec.MsgspecError, RecursionError):
            return None
        return found[:-2], found[-2]

    def parts_as_text(line: bytes) -> tuple[Parts, dict[str, Any]] | None:
        """``((values of FIELDS, data as compact JSON in ASCII), data)``, or None likewise.

        The text is the line's own where writing ``data`` anew would give it again.
        """
        if line[-18:] != b',"crc":"%08x"}' % _crc32(line[:-18]):
            return None
        try:
            found = _tuple(_raw(line))
            raw = bytes(found[-2])
            data = _data(raw)
            text = raw.decode("ascii") if _encode(data) == raw and b"\x7f" not in raw else _ENCODE(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        return (*found[:-2], text), data

    def loads(text: str) -> Any:
        """The value of JSON text that is known to be sound."""
        try:
            return _any(text)
        except (msgspec.MsgspecError, RecursionError):
            return json.loads(text)  # half a character as an escape, or very deep
