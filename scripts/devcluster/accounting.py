"""munge, MariaDB and slurmdbd, and what is in the accounting: clusters, accounts, users, QOS.

Knows nothing of controllers and nodes. The private database password never leaves the state
directory.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from . import slurm
from .daemons import mariadbd, slurmdbd
from .errors import DevClusterError
from .processes import clean_environment, wait_until
from .settings import Layout, Settings

ACCOUNTS = ("lab", "robots")  # the first is everybody's default
# `capped` is there to run into: at most 3 jobs of a user at a time in the queue
QOS = {"urgent": "priority=100", "capped": "MaxSubmitJobsPerUser=3"}


def ensure_munge_key(layout: Layout) -> None:
    key = layout.munge_key
    if key.exists() and key.stat().st_size:
        return
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400), "wb") as stream:
        stream.write(secrets.token_bytes(128))
    shutil.chown(key, "munge", "munge")


def munge_answers(layout: Layout) -> bool:
    command = ["munge", "--no-input", f"--socket={layout.munge_socket}"]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


def database_password(layout: Layout) -> str:
    path = layout.root / "etc/database-password"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secrets.token_hex(16))
    return path.read_text().strip()


def create_database_files(layout: Layout) -> None:
    """Run once, before the first start: MariaDB's system tables, with root let in by its uid
    alone."""
    if (layout.database_dir / "mysql").is_dir():
        return
    log = layout.root / "log/mysql/install.log"
    command = [
        "mariadb-install-db",
        "--no-defaults",
        "--user=mysql",
        f"--datadir={layout.database_dir}",
        "--auth-root-authentication-method=socket",
        "--skip-test-db",
    ]
    environment = clean_environment(layout.root)
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    if done.returncode:
        # A half-made data directory would be taken for a whole one next time
        shutil.rmtree(layout.database_dir, ignore_errors=True)
        raise DevClusterError(f"mariadb-install-db failed ({done.returncode})", hint=f"its log: {log}")


def _sql(layout: Layout, statements: str) -> bool:
    command = ["mariadb", "--no-defaults", f"--socket={layout.database_socket}", "--user=root"]
    done = subprocess.run(command, input=statements.encode(), capture_output=True)
    return done.returncode == 0


def wait_for_database(layout: Layout, settings: Settings, timeout_s: float = 60) -> None:
    daemon = mariadbd(layout, settings)
    if not wait_until(lambda: _sql(layout, "select 1"), timeout_s, poll_s=0.1):
        raise daemon.failure(f"did not answer within {timeout_s:g} s")


def ensure_database(layout: Layout, settings: Settings) -> None:
    password = database_password(layout)
    statements = "create database if not exists slurm_acct_db;"
    for host in ("localhost", "127.0.0.1"):
        statements += (
            f"create user if not exists 'slurm'@'{host}' identified by '{password}';"
            f"alter user 'slurm'@'{host}' identified by '{password}';"
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}';"
        )
    if not _sql(layout, statements):
        raise mariadbd(layout, settings).failure("refused to create the accounting database")


def wait_for_slurmdbd(layout: Layout, settings: Settings, timeout_s: float = 60) -> None:
    first = settings.clusters[0].name
    command = ("sacctmgr", "--noheader", "show", "cluster")

    def answers() -> bool:
        return slurm.try_call(layout, first, *command, timeout_s=10) is not None

    if not wait_until(answers, timeout_s, poll_s=0.1):
        raise slurmdbd(layout, settings).failure(f"did not answer within {timeout_s:g} s")


def _associations(layout: Layout, settings: Settings) -> set[tuple[str, ...]]:
    command = (
        "sacctmgr",
        "--noheader",
        "--parsable2",
        "show",
        "assoc",
        "format=cluster,account,user",
    )
    out = slurm.call(layout, settings.clusters[0].name, *command)
    return {tuple(line.split("|")) for line in out.splitlines()}


def ensure_accounts(layout: Layout, settings: Settings) -> None:
    """Both clusters, the accounts, the QOS, and every user in every account."""
    first = settings.clusters[0].name
    users = ("root", *settings.users)
    clusters = [c.name for c in settings.clusters]
    wanted = {(c, a, u) for c in clusters for a in ACCOUNTS for u in users}
    if wanted <= _associations(layout, settings):
        return
    everywhere = f"cluster={','.join(clusters)}"
    adds: list[list[str]] = [["cluster", name] for name in clusters]
    adds += [["qos", name, limit] for name, limit in QOS.items()]
    adds += [
        [
            "account",
            ",".join(ACCOUNTS),
            everywhere,
            "Description=rehearsal",
            "Organization=trainmaster",
        ]
    ]
    adds += [
        [
            "user",
            ",".join(users),
            everywhere,
            f"account={','.join(ACCOUNTS)}",
            f"defaultaccount={ACCOUNTS[0]}",
            f"qos={','.join(['normal', *QOS])}",
            "defaultqos=normal",
        ]
    ]
    for words in adds:
        # rc 1 also says "it is there already"; what counts is checked below
        slurm.try_call(layout, first, "sacctmgr", "--immediate", "--quiet", "add", *words)
    missing = wanted - _associations(layout, settings)
    if missing:
        raise slurmdbd(layout, settings).failure(f"did not take these associations: {sorted(missing)}")


def protect_dbd_conf(path: Path) -> None:
    # slurmdbd refuses a configuration file that is not its own user's alone
    shutil.chown(path, "slurm", "slurm")
