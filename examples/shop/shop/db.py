# SPDX-License-Identifier: Apache-2.0
"""The database: opening it, migrating it, and one transaction at a time."""

import contextlib
import pathlib
import sqlite3

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_PATH = ROOT / "shop.db"
MIGRATIONS = ROOT / "migrations"


def connect(path=DEFAULT_PATH, *, must_exist=True):
    """Open the database at `path`. Raises FileNotFoundError when it must exist and does not."""
    if str(path) != ":memory:" and must_exist and not pathlib.Path(path).exists():
        raise FileNotFoundError(f"no database at {path}: run seed.py first")
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA foreign_keys = ON")
    return db


@contextlib.contextmanager
def transaction(db):
    """Commit on success, roll back on any exception."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def version(db):
    return db.execute("PRAGMA user_version").fetchone()[0]


def available_migrations():
    """[(number, path)] in order; the number is the file name's first four digits."""
    return sorted((int(p.name[:4]), p) for p in MIGRATIONS.glob("[0-9][0-9][0-9][0-9]_*.sql"))


def migrate(db):
    """Apply what is missing, each file in its own transaction. Returns the names applied."""
    applied = []
    for number, path in available_migrations():
        if number <= version(db):
            continue
        db.executescript(f"BEGIN;\n{path.read_text()}\nPRAGMA user_version = {number};\nCOMMIT;")
        applied.append(path.name)
    return applied
