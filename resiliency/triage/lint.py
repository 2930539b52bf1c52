"""What makes a signature fit for use; ``triage signatures lint`` and ``test_signatures.py`` ask the same
questions.

A pattern is refused when it can take time that grows faster than the line: a repeated group that can
match in more than one way. The check reads the parsed expression, it does not time anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..taxonomy import CATEGORIES, Action
from .signatures import Signature

try:
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)


def catastrophic(pattern: str) -> bool:
    """Whether a group that is repeated without limit holds a repeat or alternatives that begin alike."""
    return _walk(parser.parse(pattern), inside=False)


def _walk(tree: Any, *, inside: bool) -> bool:
    for op, value in tree:
        if op in _REPEATS:
            _, high, body = value
            many = high == constants.MAXREPEAT or high > 25
            if inside and many:
                return True
            if _walk(body, inside=inside or (many and _group(body))):
                return True
        elif op is constants.SUBPATTERN:
            if _walk(value[-1], inside=inside):
                return True
        elif op is constants.BRANCH:
            if inside and _alike(value[1]):
                return True
            if any(_walk(branch, inside=inside) for branch in value[1]):
                return True
        elif op in (constants.ASSERT, constants.ASSERT_NOT) and _walk(value[1], inside=False):
            return True
    return False


def _group(body: Any) -> bool:
    """More than one character class: something whose parts can be divided up differently."""
    return len(body) > 1 or (len(body) == 1 and body[0][0] in (constants.SUBPATTERN, constants.BRANCH))


def _alike(branches: Sequence[Any]) -> bool:
    """Whether two alternatives begin with the same literal (or one begins with a class)."""
    firsts = [str(b[0]) if len(b) else "" for b in branches]
    return len(set(firsts)) < len(firsts)


def problems_of(signature: Signature) -> list[str]:
    """Everything wrong with one signature, a sentence each."""
    found = []
    if signature.category not in CATEGORIES:
        found.append(f"category {signature.category!r} is not in the taxonomy")
    if signature.action not in {a.value for a in Action}:
        found.append(f"action {signature.action!r} is not in the taxonomy")
    for name in ("provenance", "date"):
        if not getattr(signature, name):
            found.append(f"{name} is missing")
    if signature.date and not re.match(r"20\d\d-\d\d", signature.date):
        found.append("date is not YYYY-MM")
    if not signature.positive or not signature.negative:
        found.append("needs at least one positive and one negative sample")
    if catastrophic(signature.pattern.pattern):
        found.append("the pattern can run away on a long line")
    if min(len(a) for a in signature.anchors) < 3 and signature.where == "line":
        found.append("an anchor is shorter than three characters")
    for sample in signature.positive:
        if not signature.pattern.search(sample):
            found.append(f"does not match its positive sample {sample[:80]!r}")
        elif not any(a in sample for a in signature.anchors):
            found.append(f"no anchor is in its positive sample {sample[:80]!r}")
    for sample in (*signature.negative, *signature.unlike):
        if signature.pattern.search(sample):
            found.append(f"matches what it must not match: {sample[:80]!r}")
    return found


def clashes(signatures: Sequence[Signature]) -> list[str]:
    """Negative samples, lines that mean nothing, that a signature of any other owner matches."""
    found = []
    for owner in signatures:
        for sample in owner.negative:
            for other in signatures:
                if other is owner or other.where == "exception":
                    continue  # the last line of a traceback is never such a line
                if any(a in sample for a in other.anchors) and other.pattern.search(sample):
                    found.append(f"{other.id} matches {owner.id}'s negative sample {sample[:80]!r}")
    return found
