"""The unprivileged login users people submit as; created with useradd when missing, removed by
a wipe.

Only users this dev cluster created are ever removed: their names are kept in `created-users`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

from .errors import DevClusterError
from .settings import Layout


def home_of(layout: Layout, user: str) -> str:
    return str(layout.root / "home" / user)


def ensure_users(layout: Layout, users: tuple[str, ...]) -> None:
    for user in users:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            _useradd(layout, user)
            entry = pwd.getpwnam(user)
        home = layout.root / "home" / user
        home.mkdir(mode=0o755, exist_ok=True)
        if home.stat().st_uid != entry.pw_uid:
            os.chown(home, entry.pw_uid, entry.pw_gid)


def _useradd(layout: Layout, user: str) -> None:
    command = [
        "useradd",
        "--no-create-home",
        "--home-dir",
        home_of(layout, user),
        "--shell",
        "/bin/bash",
        user,
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise DevClusterError(
            f"user {user} could not be created: {done.stderr.strip()}",
            hint=f"create it yourself, or name others with --users; tried: {' '.join(command)}",
        )
    with (layout.root / "created-users").open("a") as record:
        record.write(f"{user}\n")


def remove_created_users(layout: Layout) -> list[str]:
    """userdel what `ensure_users` created here; a user that has processes, or lives elsewhere,
    stays."""
    record = layout.root / "created-users"
    if not record.exists():
        return []
    removed = []
    for user in dict.fromkeys(record.read_text().split()):
        try:
            ours = pwd.getpwnam(user).pw_dir == home_of(layout, user)
        except KeyError:
            continue
        if ours and shutil.which("userdel"):
            done = subprocess.run(["userdel", user], capture_output=True, stdin=subprocess.DEVNULL)
            if done.returncode == 0:
                removed.append(user)
    return removed
