# SPDX-License-Identifier: Apache-2.0
"""What an order costs.

A coupon takes a percentage off the subtotal, rounded once. Every line carries its share of that
discount, because a line can be refunded on its own; so the shares add up to the discount, and no
line is ever cheaper than nothing.
"""

from . import money


class Line:
    """One position of an order: `quantity` pieces at `price_cents` each."""

    def __init__(self, quantity, price_cents):
        self.quantity = quantity
        self.price_cents = price_cents

    @property
    def amount_cents(self):
        return self.quantity * self.price_cents


def subtotal(lines):
    return sum(line.amount_cents for line in lines)


def discount(lines, basis_points):
    """The discount of the whole order."""
    return money.percent_of(subtotal(lines), basis_points)


def discount_shares(lines, basis_points):
    """Each line's share of the order's discount, in the order of the lines."""
    return [line.amount_cents * basis_points // 10000 for line in lines]


def line_totals(lines, basis_points):
    """What the customer pays for each line."""
    shares = discount_shares(lines, basis_points)
    return [line.amount_cents - share for line, share in zip(lines, shares)]
