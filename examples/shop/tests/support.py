# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a small database in memory, and a copy of the real one."""

import sqlite3
import unittest

from shop import db as database

NOW = "2025-06-01T12:00:00Z"
BOOK, TEA, MUG, SAMPLE = 1, 2, 3, 4


def small_shop():
    """Four products (one is free), two customers, three coupons."""
    db = database.connect(":memory:")
    database.migrate(db)
    for product_id, sku, price, stock in ((BOOK, "BOOK", 1999, 5), (TEA, "TEA", 333, 100), (MUG, "MUG", 1250, 10),
                                          (SAMPLE, "SAMPLE", 0, 50)):
        db.execute("INSERT INTO product VALUES (?, ?, ?, 'test', ?)", (product_id, sku, sku.title(), price))
        db.execute("INSERT INTO stock VALUES (?, ?)", (product_id, stock))
    db.execute("INSERT INTO customer VALUES (1, 'ada@example.org', 'Ada', 'DE', ?)", (NOW,))
    db.execute("INSERT INTO customer VALUES (2, 'bo@example.org', 'Bo', 'FR', ?)", (NOW,))
    db.execute("INSERT INTO coupon VALUES ('TEN', 1000, NULL)")
    db.execute("INSERT INTO coupon VALUES ('ALL', 10000, NULL)")
    db.execute("INSERT INTO coupon VALUES ('OLD', 1000, '2025-01-01T00:00:00Z')")
    return db


def real_shop():
    """A private copy of shop.db; the file itself is never written by a test."""
    source = database.connect()
    copy = sqlite3.connect(":memory:", isolation_level=None)
    copy.row_factory = sqlite3.Row
    source.backup(copy)
    source.close()
    return copy


class ShopTest(unittest.TestCase):
    def setUp(self):
        self.db = small_shop()
        self.addCleanup(self.db.close)

    def stock(self, product_id):
        return self.db.execute("SELECT quantity FROM stock WHERE product_id = ?", (product_id,)).fetchone()[0]
