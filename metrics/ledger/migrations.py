"""From any older schema to the current one, each step in one transaction.

``PRAGMA user_version`` says which schema a file has. A file of a newer version is refused, never
touched. ``tests/metrics/test_store.py``: a step that fails leaves the file as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from resiliency.errors import LedgerError

from .schema import APPLICATION_ID, statements_v1
from .schema2 import statements_v2
from .schema3 import statements_v3

Migration = Callable[[], Sequence[str]]

#: ``MIGRATIONS[n]`` brings version n to n + 1.
MIGRATIONS: Final[tuple[Migration, ...]] = (statements_v1, statements_v2, statements_v3)
VERSION: Final = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """The schema version of an open file; 0: an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_foreign(connection: sqlite3.Connection, path: str, *, newest: int = VERSION) -> int:
    """The file's schema version. Raises LedgerError when it is newer than ours or no ledger at
    all.
    """
    version = version_of(connection)
    if version > newest:
        raise LedgerError(
            f"{path} has ledger schema {version}; this version of Trainmaster knows schemas up to {newest}",
            hint="upgrade Trainmaster on this machine, or move the file away and run:"
            " python -m orchestrator ledger rebuild",
        )
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if owner != APPLICATION_ID and (version or _tables(connection)):
        raise LedgerError(
            f"{path} is a SQLite file, but not a Trainmaster ledger",
            hint="move it away, or choose another directory with --home",
        )
    return version


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def migrate(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the file to the newest version; returns how many steps were made.

    Call with the writer's lock held. The connection must be in autocommit mode.
    """
    version = refuse_foreign(connection, path, newest=len(migrations))
    for number in range(version, len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[number]():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    return len(migrations) - version
