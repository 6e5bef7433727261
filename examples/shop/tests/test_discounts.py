# SPDX-License-Identifier: Apache-2.0
import unittest

from shop import orders, payments, pricing

from .support import BOOK, MUG, NOW, SAMPLE, TEA, ShopTest


def lines(*pairs):
    return [pricing.Line(quantity, price) for quantity, price in pairs]


class Discounts(unittest.TestCase):
    def test_without_coupon(self):
        self.assertEqual(pricing.discount_shares(lines((1, 333), (2, 1250)), 0), [0, 0])

    def test_one_line_carries_all(self):
        self.assertEqual(pricing.discount_shares(lines((3, 1000)), 1000), [300])

    def test_everything_off(self):
        self.assertEqual(pricing.line_totals(lines((1, 333), (2, 1250)), 10000), [0, 0])

    def test_equal_lines_differ_by_a_cent_at_most(self):
        shares = pricing.discount_shares(lines((1, 777), (1, 777), (1, 777), (1, 777)), 1000)
        self.assertLessEqual(max(shares) - min(shares), 1)

    def test_shares_add_up(self):
        """Bug 1042: whoever sent back everything was refused the last refund, a cent too dear."""
        order = lines((1, 333), (1, 333), (1, 333))
        self.assertEqual(pricing.discount(order, 1000), 100)
        self.assertEqual(sum(pricing.discount_shares(order, 1000)), 100)

    def test_no_share_exceeds_its_line(self):
        """A free sample is the last line of many orders."""
        order = lines((1, 333), (1, 333), (1, 333), (1, 0))
        for line, share in zip(order, pricing.discount_shares(order, 1000)):
            self.assertTrue(0 <= share <= line.amount_cents, f"share {share} of a line of {line.amount_cents}")


class Refunds(ShopTest):
    def paid_order(self, items, coupon=None):
        order_id = orders.place(self.db, 1, items, coupon=coupon, now=NOW)
        payments.charge(self.db, order_id, method="card", reference=f"charge-{order_id}", now=NOW)
        return order_id

    def test_refund_is_what_was_paid(self):
        order_id = self.paid_order([(MUG, 2)], "TEN")
        payments.refund_line(self.db, order_id, 1, reference="r1", now=NOW)
        self.assertEqual(payments.booked(self.db, order_id), 0)

    def test_free_sample_refunds_nothing(self):
        order_id = self.paid_order([(BOOK, 1), (TEA, 1), (SAMPLE, 1)], "TEN")
        before = payments.booked(self.db, order_id)
        self.assertIsNone(payments.refund_line(self.db, order_id, 3, reference="r1", now=NOW))
        self.assertEqual(payments.booked(self.db, order_id), before)

    def test_refund_is_booked_once(self):
        order_id = self.paid_order([(MUG, 1), (BOOK, 1)])
        first = payments.refund_line(self.db, order_id, 1, reference="same", now=NOW)
        self.assertEqual(payments.refund_line(self.db, order_id, 1, reference="same", now=NOW), first)
        self.assertEqual(payments.booked(self.db, order_id), 1999)
