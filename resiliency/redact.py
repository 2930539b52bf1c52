"""Nothing that looks like a credential leaves through output.

Two kinds of evidence: a name that says so (``API_KEY=…``, ``"token": "…"``, ``--password …``) and shapes
that providers document. Meant for output and error texts; values given by ``env_from`` are never
written in the first place. ``tests/resiliency/test_redact.py`` has samples of each, and of what must stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "[redacted]"

#: Words in a variable's or key's name that make its value a secret.
SECRET_NAME: Final = re.compile(
    r"(?i)(?:^|[_.-])(?:api_?key|access_?key|secret(?:_?key)?|private_?key|auth_?token|token|passw(?:or)?d|"
    r"passphrase|credentials?)(?:$|[_.-])"
)

_NAME = (
    r"[A-Za-z0-9_.-]*(?:api[_-]?key|access[_-]?key|secret|private[_-]?key|token|passw(?:or)?d|passphrase|"
    r"credential)[A-Za-z0-9_-]*"
)
#: Regular expression for the documented prefixes of well-known issuers: the one list, also used by
#: ``orchestrator.spec.credentials`` to refuse such values in an experiment file.
ISSUED: Final = (
    r"hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"  # GitHub
    r"|glpat-[A-Za-z0-9_-]{18,}"  # GitLab
    r"|sk-(?:proj-|ant-[a-z0-9]+-)?[A-Za-z0-9_-]{24,}"  # OpenAI, Anthropic
    r"|nvapi-[A-Za-z0-9_-]{30,}"  # NVIDIA
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS key id
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r"|xox[abeoprs]-[0-9A-Za-z-]{10,}"  # Slack
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JSON web token
)

_PATTERNS: Final[list[tuple[re.Pattern[str], str]]] = [
    # key=value, key: value, "key": "value"; the value ends at a quote, space or separator.
    # Only where the name is one: "tokens: 123" (a count) and "token 5" stay.
    (
        re.compile(rf"(?i)(\b{_NAME}[\"']?\s*[=:]\s*[\"']?)(?!\d+(?:\.\d+)?\b)([^\s\"',;}}]{{6,}})"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)(--(?:password|token|api-key|secret)[= ])(\S+)"), rf"\1{MASK}"),
    (re.compile(r"(?i)(\bauthorization:\s*(?:bearer|basic|token)\s+)(\S+)"), rf"\1{MASK}"),
    (re.compile(r"(://[^/\s:@]+:)([^@/\s]+)(@)"), rf"\1{MASK}\3"),  # userinfo of a URL (RFC 3986)
    (re.compile(rf"(?<![A-Za-z0-9])(?:{ISSUED})"), MASK),
    # Shorter and looser than any issuer's: in output a mask too many does no harm.
    (
        re.compile(r"\b(?:hf|gho|ghp|ghs|ghu|ghr|glpat|sk|pk|xox[abprs])[_-][A-Za-z0-9_-]{16,}"),
        MASK,
    ),
    (re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"), MASK),  # JWT
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        MASK,
    ),
]


def looks_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return SECRET_NAME.search(name) is not None


def looks_secret_value(value: str) -> bool:
    """Whether a value has the documented shape of a credential."""
    return any(pattern.search(value) for pattern, _ in _PATTERNS[3:])


def redact(text: str, values: Iterable[str] = ()) -> str:
    """``text`` without credentials; ``values`` are known secrets to remove wherever they stand."""
    for value in values:
        if len(value) >= 4:
            text = text.replace(value, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
