# SPDX-License-Identifier: Apache-2.0
"""The real database, shop.db."""

import pathlib
import tempfile
import unittest

from shop import db as database
from shop import orders, reports

from .support import real_shop


class RealData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.db = real_shop()

    def test_sound(self):
        self.assertEqual(self.db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        self.assertEqual(self.db.execute("PRAGMA foreign_key_check").fetchall(), [])

    def test_size(self):
        self.assertGreaterEqual(self.db.execute('SELECT COUNT(*) FROM "order"').fetchone()[0], 1800)
        self.assertGreaterEqual(self.db.execute("SELECT COUNT(*) FROM order_line").fetchone()[0], 4000)

    def test_subtotals(self):
        wrong = self.db.execute(
            'SELECT o.id FROM "order" o JOIN order_line l ON l.order_id = o.id GROUP BY o.id'
            " HAVING SUM(l.quantity * l.price_cents) <> o.subtotal_cents").fetchall()
        self.assertEqual(wrong, [])

    def test_payments_balance(self):
        self.assertEqual(reports.unbalanced_orders(self.db), [])

    def test_reports(self):
        months = reports.sales_by_month(self.db)
        self.assertGreaterEqual(len(months), 12)
        self.assertEqual(len(reports.best_sellers(self.db)), 10)

    def test_every_order_reads(self):
        for row in self.db.execute('SELECT id, total_cents FROM "order" WHERE coupon IS NULL').fetchall():
            order = orders.get(self.db, row["id"])
            self.assertEqual(sum(line["total_cents"] for line in order["lines"]), row["total_cents"])


class Migrations(unittest.TestCase):
    def test_from_nothing_and_again(self):
        with tempfile.TemporaryDirectory() as folder:
            db = database.connect(pathlib.Path(folder) / "new.db", must_exist=False)
            self.addCleanup(db.close)
            self.assertEqual(database.migrate(db)[0], "0001_base.sql")
            self.assertEqual(database.migrate(db), [])
            self.assertEqual(database.version(db), database.available_migrations()[-1][0])

    def test_missing_database_is_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "seed.py"):
            database.connect("/nonexistent/shop.db")
