"""An attempt that has been overtaken may not save any more.

A later link of the same stage that has claimed its place (``claims/<token>.json``) owns the stage's
checkpoints. An earlier attempt that still runs, on a node that was taken for lost, say, must not put its own
among them. Looks, decides, writes nothing. ``tests/resiliency/test_fence.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import contract
from .errors import TrainmasterError
from .exitcodes import DO_NOT_RESTART


class StaleAttempt(TrainmasterError):
    """A later link has taken over: this attempt ends, and nothing of it may be saved (exit code 93)."""

    exit_code = DO_NOT_RESTART
    category = "requeued"


def overtaken_by(token: str, claims: Iterable[str]) -> str | None:
    """The highest later link of the same stage among the claimed tokens; None: we are the latest."""
    mine = contract.parse_token(token)
    if mine is None:
        return None
    later = [
        (other[2], name)
        for name in claims
        if (other := contract.parse_token(name)) and other[:2] == mine[:2] and other[2] > mine[2]
    ]
    return max(later)[1] if later else None


class Fence:
    """Asks the claims of a run. Without a token (a program run by hand) it lets everything pass."""

    def __init__(self, claims: Path | None, token: str = "") -> None:
        self._claims, self._token = claims, token

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Fence:
        env = os.environ if environ is None else environ
        run_dir, token = env.get(contract.ENV_RUN_DIR), env.get(contract.ENV_TOKEN, "")
        return cls(contract.RunPaths(Path(run_dir)).claims if run_dir and token else None, token)

    def check(self) -> None:
        """Raises StaleAttempt. Claims that cannot be listed prove nothing."""
        if self._claims is None:
            return
        try:
            names = [name.removesuffix(".json") for name in os.listdir(self._claims)]
        except OSError:
            return
        later = overtaken_by(self._token, names)
        if later is not None:
            raise StaleAttempt(
                f"link {later} has taken over this stage: nothing of {self._token} is saved any more",
                hint="nothing to do: the later link goes on from the newest checkpoint",
            )
