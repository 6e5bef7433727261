# SPDX-License-Identifier: Apache-2.0
import sqlite3

from shop import orders, payments
from shop.errors import Conflict, Invalid, NotFound

from .support import BOOK, MUG, NOW, TEA, ShopTest


class Orders(ShopTest):
    def test_place(self):
        order = orders.get(self.db, orders.place(self.db, 1, [(BOOK, 1), (MUG, 2)], now=NOW))
        self.assertEqual((order["subtotal_cents"], order["discount_cents"], order["total_cents"]), (4499, 0, 4499))
        self.assertEqual([line["total_cents"] for line in order["lines"]], [1999, 2500])

    def test_coupon(self):
        order = orders.get(self.db, orders.place(self.db, 1, [(BOOK, 1)], coupon="TEN", now=NOW))
        self.assertEqual((order["discount_cents"], order["total_cents"]), (200, 1799))

    def test_coupon_unknown_or_expired(self):
        for coupon in ("NONE", "OLD", ""):
            with self.subTest(coupon), self.assertRaises(Invalid):
                orders.place(self.db, 1, [(BOOK, 1)], coupon=coupon, now=NOW)

    def test_takes_stock(self):
        orders.place(self.db, 1, [(BOOK, 2)], now=NOW)
        self.assertEqual(self.stock(BOOK), 3)

    def test_short_stock_changes_nothing(self):
        with self.assertRaises(Conflict):
            orders.place(self.db, 1, [(TEA, 4), (BOOK, 6)], now=NOW)
        self.assertEqual((self.stock(TEA), self.stock(BOOK)), (100, 5))
        self.assertEqual(self.db.execute('SELECT COUNT(*) FROM "order"').fetchone()[0], 0)

    def test_bad_orders(self):
        for customer, items, error in ((1, [], Invalid), (1, [(BOOK, 0)], Invalid), (9, [(BOOK, 1)], NotFound),
                                       (1, [(99, 1)], NotFound)):
            with self.subTest(items=items), self.assertRaises(error):
                orders.place(self.db, customer, items, now=NOW)

    def test_cancel_returns_stock(self):
        order_id = orders.place(self.db, 1, [(BOOK, 2)], now=NOW)
        orders.cancel(self.db, order_id)
        self.assertEqual(self.stock(BOOK), 5)
        self.assertEqual(orders.get(self.db, order_id)["state"], "cancelled")

    def test_cancel_paid_order(self):
        order_id = orders.place(self.db, 1, [(BOOK, 2)], now=NOW)
        payments.charge(self.db, order_id, method="card", reference="c1", now=NOW)
        with self.assertRaises(Conflict):
            orders.cancel(self.db, order_id)

    def test_charge_is_booked_once(self):
        order_id = orders.place(self.db, 1, [(MUG, 1)], now=NOW)
        first = payments.charge(self.db, order_id, method="card", reference="same", now=NOW)
        self.assertEqual(payments.charge(self.db, order_id, method="card", reference="same", now=NOW), first)
        self.assertEqual(payments.booked(self.db, order_id), 1250)

    def test_nothing_to_pay(self):
        order_id = orders.place(self.db, 1, [(MUG, 1)], coupon="ALL", now=NOW)
        self.assertIsNone(payments.charge(self.db, order_id, method="card", reference="c1", now=NOW))
        self.assertEqual(orders.get(self.db, order_id)["state"], "paid")

    def test_database_refuses_wrong_totals(self):
        with self.assertRaises(sqlite3.IntegrityError):
            self.db.execute("INSERT INTO \"order\" VALUES (1, 1, 'new', NULL, 100, 10, 95, ?)", (NOW,))
