"""YAML text → plain values and the line of every key. Nothing in the text can construct an object.

Stricter than YAML 1.1: no tags, no duplicate keys, no sexagesimal numbers (``4:00:00`` stays text),
``yes``/``on`` stay text, ``1e-4`` is a number. Size, depth and what aliases expand to are limited.
``tests/orchestrator/test_spec_yaml.py``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from .errors import Fault, refuse

Path = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 20_000  # after aliases are expanded

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_PREFIX = "tag:yaml.org,2002:"
# What PyYAML's scanner can raise on hostile escapes and nesting, besides its own errors.
_PARSER_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError, IndexError, TypeError)


class _Loader(yaml.SafeLoader):
    """Resolves nothing but ``<<``: plain scalars are typed by :func:`plain`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own interface)


_Loader.add_implicit_resolver(_PREFIX + "merge", re.compile(r"<<"), ["<"])


@dataclass
class Source:
    """Values, and the 1-based line of each path's key (or of the item, in a list)."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    spoilt: set[Path] = field(default_factory=set)  # paths whose value is a stand-in after a fault


def decode(raw: bytes, file: str) -> str:
    """UTF-8 text of a file. Raises SpecError naming the line of the first bad byte."""
    if len(raw) > MAX_BYTES:
        fault = Fault(file, 0, "", f"the file has {len(raw)} bytes", f"at most {MAX_BYTES}")
        raise refuse(file, [fault])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refuse(file, [Fault(file, line, "", "this line is not UTF-8 text")]) from error


def plain(text: str) -> Any:
    """The value of an unquoted scalar. Raises ValueError for a number that cannot be kept exactly."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        if len(text) > 40:
            raise ValueError("the number is too large")
        number = int(text.replace("_", ""), 0)
        if abs(number) >= 2**63:
            raise ValueError("the number is too large")
        return number
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").lower())
        if not math.isfinite(value):
            raise ValueError("the number is not finite")
        return value
    return text


def parse(text: str, file: str) -> Source:
    """Values and lines of one document; faults that leave the rest readable are in ``.faults``.

    Raises SpecError when the text is not YAML at all.
    """
    try:
        if (deep := _too_deep(text)) is not None:
            raise refuse(file, [Fault(file, deep, "", f"nested deeper than {MAX_DEPTH} levels")])
        node = _compose(text)
    except _PARSER_ERRORS as error:
        raise refuse(file, [_syntax(error, file)]) from error
    source = Source()
    if node is not None:
        builder = _Builder(file, source)
        try:
            source.data = builder.build(node, (), frozenset())
        except _TooMuch as stop:
            raise refuse(file, [Fault(file, stop.line, "", stop.why)]) from stop
    return source


def _too_deep(text: str) -> int | None:
    """The line where nesting passes the limit. Found from events, so that it needs no recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                return int(event.start_mark.line) + 1 if event.start_mark else 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
    return None


def _compose(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _syntax(error: Exception, file: str) -> Fault:
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or "")
    if not problem:
        problem = "a character that YAML does not allow" if isinstance(error, yaml.YAMLError) else str(error)
    expected = ""
    if "'\\t'" in problem:
        problem, expected = "a tab is used for indentation", "spaces"
    elif "single document" in problem or "but found another document" in problem:
        expected = "one document (no second '---')"
    elif "mapping values are not allowed" in problem:
        expected = "quotes around a value that contains ': '"
    elif "but got '{'" in problem:
        expected = "quotes around ${…} inside { }"
    return Fault(file, mark.line + 1 if mark else 0, "", f"not YAML: {problem}", expected)


class _TooMuch(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line, self.why = line, why


class _Builder:
    """Node tree → values. Counts what it makes, so aliases cannot multiply without end."""

    def __init__(self, file: str, source: Source) -> None:
        self.file, self.source, self.made = file, source, 0

    def fault(self, node: Any, path: Path, message: str, expected: str = "") -> None:
        line = node.start_mark.line + 1
        self.source.faults.append(Fault(self.file, line, dotted(path), message, expected))

    def count(self, node: Any) -> None:
        self.made += 1
        if self.made > MAX_VALUES:
            why = f"more than {MAX_VALUES} values once aliases are expanded"
            raise _TooMuch(node.start_mark.line + 1, why)

    def build(self, node: Any, path: Path, above: frozenset[int]) -> Any:
        self.count(node)
        if len(path) > MAX_DEPTH:
            raise _TooMuch(node.start_mark.line + 1, f"nested deeper than {MAX_DEPTH} levels")
        if id(node) in above:
            raise _TooMuch(node.start_mark.line + 1, "an alias refers to what contains it")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        above = above | {id(node)}
        kind = "seq" if isinstance(node, yaml.SequenceNode) else "map"
        if node.tag != _PREFIX + kind:
            self.fault(node, path, f"the tag {_short(node.tag)} is not supported", "a plain value")
        if kind == "map":
            return self.mapping(node, path, above)
        values = []
        for number, item in enumerate(node.value):
            place = (*path, number)
            self.source.lines[place] = item.start_mark.line + 1
            values.append(self.build(item, place, above))
        return values

    def mapping(
        self, node: Any, path: Path, above: frozenset[int], skip: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """``skip``: keys that what merges this mapping has already."""
        values: dict[str, Any] = {}
        first: dict[str, int] = {}
        merges: list[Any] = []
        for key_node, value_node in node.value:
            if key_node.tag == _PREFIX + "merge":
                many = isinstance(value_node, yaml.SequenceNode)
                merges += value_node.value if many else [value_node]
                continue
            key = self.key(key_node, path)
            if key is None or key in skip:
                continue
            line = key_node.start_mark.line + 1
            if key in first:
                message = f"given twice (first on line {first[key]})"
                self.fault(key_node, (*path, key), message, "each key once")
                continue
            first[key] = line
            place = (*path, key)
            self.source.lines[place] = line
            values[key] = self.build(value_node, place, above)
        for one in merges:  # of several, the first wins
            if not isinstance(one, yaml.MappingNode):
                self.fault(one, path, "'<<' merges a mapping only", "an alias of a mapping")
            elif id(one) in above:
                raise _TooMuch(one.start_mark.line + 1, "an alias refers to what contains it")
            else:
                self.count(one)
                taken = skip | values.keys()
                values |= self.mapping(one, path, above | {id(one)}, taken)
        return values

    def key(self, node: Any, path: Path) -> str | None:
        value = self.scalar(node, path) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(value, str):
            return value
        shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        self.fault(node, path, f"{_short(shown)} cannot be a key", "a word (put it in quotes)")
        return None

    def scalar(self, node: Any, path: Path) -> Any:
        text = node.value
        if "\0" in text or not _encodable(text):
            self.fault(node, path, "a character that cannot be written (NUL or half a surrogate)")
            self.source.spoilt.add(path)
            return ""
        if node.tag in (_PREFIX + "str", _PREFIX + "merge"):
            if node.style is not None or node.tag == _PREFIX + "merge":
                return text
        else:
            self.fault(node, path, f"the tag {_short(node.tag)} is not supported", "a plain value")
            self.source.spoilt.add(path)
            return text
        try:
            return plain(text)
        except ValueError as error:
            self.fault(node, path, str(error), "a number that a computer can keep")
            self.source.spoilt.add(path)
            return 0


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "…")


def dotted(path: Path) -> str:
    """``stages.pretrain.needs[0]``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
