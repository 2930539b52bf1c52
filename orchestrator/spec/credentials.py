"""What looks like a credential. Names and shapes only; a value is never repeated in a message.

The shapes are those of :mod:`resiliency.redact`, and what else may stand in a file.
``tests/orchestrator/test_spec_secrets.py``.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from resiliency.redact import ISSUED

_SECRET_WORDS: Final = {
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
    "SECRETKEY",
    "ACCESSKEY",
}
_KEY_OWNERS: Final = {"API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "SIGNING", "ENCRYPTION", "LICENSE"}
# HF_TOKEN_FILE names a file, MAX_TOKEN_COUNT counts: the secret itself is elsewhere.
_HARMLESS_ENDS: Final = {"FILE", "PATH", "DIR", "NAME", "COUNT", "LENGTH", "LIMIT", "TIMEOUT", "TYPE"}

_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    rf"{ISSUED}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/:@]+@"  # user:password in a URL
    r")"
)


def secret_name(name: str) -> bool:
    """Whether a variable of this name would hold a secret: ``HF_TOKEN``, ``WANDB_API_KEY``; not
    ``TOKENIZERS_PARALLELISM`` or ``KEY_FILE``."""
    words = [w for w in name.upper().split("_") if w]
    if not words or words[-1] in _HARMLESS_ENDS:
        return False
    if _SECRET_WORDS & set(words):
        return True
    pairs = itertools.pairwise(words)
    return any(key in ("KEY", "KEYS") and owner in _KEY_OWNERS for owner, key in pairs)


def harmless_value(value: str) -> bool:
    """A switch or an empty value is no secret whatever its name."""
    return value.strip().lower() in ("", "0", "1", "true", "false", "yes", "no", "on", "off", "none")


def redact(text: str) -> str:
    """The text without what has the shape of a credential."""
    return _SHAPES.sub("[credential]", text)


def secret_shape(text: str) -> bool:
    """Whether the text contains something with the shape of a credential."""
    return bool(_SHAPES.search(text))
