"""Names that more than one program relies on: environment variables, run-directory layout, tokens.

Rendered scripts, the launcher, training programs and the control plane take these from here and
nowhere else. Within a schema version, names may only be added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Environment variables of a process in an allocation.
ENV_RUN: Final = "TRAINMASTER_RUN"  # run id
ENV_RUN_DIR: Final = "TRAINMASTER_RUN_DIR"
ENV_STAGE: Final = "TRAINMASTER_STAGE"
ENV_LINK: Final = "TRAINMASTER_LINK"  # number of the link in its chain, from 1
ENV_TOKEN: Final = "TRAINMASTER_TOKEN"
ENV_CLUSTER: Final = "TRAINMASTER_CLUSTER"
ENV_ATTEMPT: Final = "TRAINMASTER_ATTEMPT"  # attempt id, see attempt_id()
ENV_CYCLE: Final = "TRAINMASTER_CYCLE"  # in-job restart number, from 0
ENV_NODE: Final = "TRAINMASTER_NODE"  # Slurm's node name (SLURMD_NODENAME), or local-0 …
ENV_STOP_FILE: Final = "TRAINMASTER_STOP_FILE"  # node-local: exists once the node must stop
ENV_STAGE_CONFIG: Final = "TRAINMASTER_STAGE_CONFIG"  # path of stage.json
ENV_HOME: Final = "TRAINMASTER_HOME"
ENV_RECORDS: Final = "TRAINMASTER_RECORDS"  # node-local directory of this cycle's step records, a file a rank
ENV_NODE_DIR: Final = "TRAINMASTER_NODE_DIR"  # node-local directory that outlives cycles, not the attempt
ENV_FAULTS: Final = "TRAINMASTER_FAULTS"  # a rehearsal's plan (resiliency.faults); absent: no faults
ENV_WARM: Final = "TRAINMASTER_WARM"  # socket of the node's warm server (launch.warm); absent: none

COMMENT_PREFIX: Final = "trainmaster:"
#: Below the home directory: the journal of what concerns no run alone, and what its events call their run.
HOME_JOURNAL: Final = "nodes"

RUN_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
STAGE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_TOKEN: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,79})\.([a-z][a-z0-9_-]{0,39})\.(\d{3,})")


def token(run_id: str, stage: str, link: int) -> str:
    """The name one link carries in the scheduler: unique, and free of any character that needs quoting."""
    return f"{run_id}.{stage}.{link:03d}"


def parse_token(text: str) -> tuple[str, str, int] | None:
    """``(run id, stage, link)`` of a token or of a ``--comment`` that carries one; None if it is not ours."""
    match = _TOKEN.fullmatch(text.removeprefix(COMMENT_PREFIX))
    return (match[1], match[2], int(match[3])) if match else None


def attempt_id(cluster: str, job_id: str, restart_count: int) -> str:
    """One Slurm allocation: ``cluster/job_id.restart_count``. Job ids alone overlap between clusters."""
    return f"{cluster}/{job_id}.{restart_count}"


def parse_attempt_id(text: str) -> tuple[str, str, int] | None:
    """``(cluster, job id, restart count)``; None if the text is not an attempt id."""
    match = re.fullmatch(r"([^/\s]+)/([^./\s]+)\.(\d+)", text)
    return (match[1], match[2], int(match[3])) if match else None


@dataclass(frozen=True)
class RunPaths:
    """Where things lie in a run directory. Nothing else builds these paths."""

    root: Path

    @property
    def run_json(self) -> Path:
        """The frozen, resolved experiment; written once, last of the run's creation."""
        return self.root / "run.json"

    @property
    def experiment(self) -> Path:
        """The file as the user gave it."""
        return self.root / "experiment.yaml"

    @property
    def lock(self) -> Path:
        return self.root / "control.lock"

    @property
    def journal(self) -> Path:
        """One ``<writer>.jsonl`` per writer."""
        return self.root / "journal"

    @property
    def scripts(self) -> Path:
        return self.root / "scripts"

    @property
    def claims(self) -> Path:
        """``<token>.json``: which job id owns a link; the first job to start creates it."""
        return self.root / "claims"

    def script(self, token_: str) -> Path:
        return self.scripts / f"{token_}.sbatch"

    def claim(self, token_: str) -> Path:
        return self.claims / f"{token_}.json"

    def stage(self, name: str) -> Path:
        return self.root / "stages" / name

    def stage_config(self, name: str) -> Path:
        return self.stage(name) / "stage.json"

    def logs(self, name: str) -> Path:
        return self.stage(name) / "logs"

    def job_log(self, name: str, link: int) -> Path:
        """What ``--output`` collects: the supervisor's own output, appended over requeues."""
        return self.logs(name) / f"link-{link:03d}.log"

    def node_log(self, name: str, link: int, restart_count: int, node: str) -> Path:
        """Output of the node's roles in one attempt."""
        return self.logs(name) / f"link-{link:03d}.{restart_count}.{node}.log"

    def evidence(self, name: str) -> Path:
        """What was gathered before a standing cycle was ended: stacks, step records."""
        return self.stage(name) / "evidence"

    def artifact(self, name: str) -> Path:
        """What later stages take as input; valid only with a manifest that verifies."""
        return self.stage(name) / "artifact"

    def checkpoints(self, name: str) -> Path:
        return self.stage(name) / "checkpoints"
