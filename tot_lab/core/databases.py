"""SQLite files of tot_lab: each has a mark that distinguishes it from the databases of other programs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence


def prepare(
    database: sqlite3.Connection, mark: int, schema: int, tables: Sequence[str], contents: str
) -> None:
    """Create the tables of an empty database. A database that has them already is not changed.

    Args:
        database: The database.
        mark: The SQLite application id of the kind of file.
        schema: The version of the tables.
        tables: The CREATE statements of the tables without this word, such as `TABLE IF NOT EXISTS …`.
        contents: What the database holds, for errors.

    Raises:
        sqlite3.DatabaseError: If the database holds other data, or was written by another version of tot_lab.
    """
    who, version = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if (who, version) == (mark, schema):
        return
    if who == mark:
        age = "a newer" if version > schema else "an older"
        raise sqlite3.DatabaseError(f"the file was written by {age} version of tot_lab (schema {version})")
    if who or version or database.execute("SELECT * FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError(f"this database does not hold {contents}. It was not changed")
    created = "".join(f"CREATE {table};" for table in tables)
    # In one transaction, since another process may be creating the same tables.
    database.executescript(
        f"BEGIN IMMEDIATE; {created} PRAGMA application_id = {mark}; PRAGMA user_version = {schema}; COMMIT"
    )
