#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bring a database up to the newest migration: python3 migrate.py [FILE]"""

import sys

from shop import db as database

if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else database.DEFAULT_PATH
    connection = database.connect(path)
    applied = database.migrate(connection)
    print(f"{path}: version {database.version(connection)}, applied {', '.join(applied) or 'nothing'}")
