# SPDX-License-Identifier: Apache-2.0
"""Charges and refunds. A reference makes a retry harmless: the same one is never booked twice."""

from . import orders
from .db import transaction
from .errors import Conflict, Invalid

METHODS = ("card", "transfer", "voucher")


def booked(db, order_id):
    """What is charged and not refunded."""
    row = db.execute(
        "SELECT COALESCE(SUM(CASE kind WHEN 'charge' THEN amount_cents ELSE -amount_cents END), 0)"
        " FROM payment WHERE order_id = ?",
        (order_id,),
    ).fetchone()
    return row[0]


def _book(db, order_id, kind, method, amount_cents, reference, now):
    return db.execute(
        "INSERT INTO payment (order_id, kind, method, amount_cents, reference, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (order_id, kind, method, amount_cents, reference, now),
    ).lastrowid


def _known(db, reference):
    row = db.execute("SELECT id FROM payment WHERE reference = ?", (reference,)).fetchone()
    return row["id"] if row else None


def charge(db, order_id, *, method, reference, now):
    """Charge an order in full and mark it paid. Returns the payment's id."""
    if method not in METHODS:
        raise Invalid(f"no payment method {method!r}")
    with transaction(db):
        if (known := _known(db, reference)) is not None:
            return known
        order = orders.get(db, order_id)
        if order["state"] != "new":
            raise Conflict(f"order {order_id} is {order['state']}: it cannot be charged")
        payment_id = None
        if order["total_cents"] > 0:
            payment_id = _book(db, order_id, "charge", method, order["total_cents"], reference, now)
        db.execute("UPDATE \"order\" SET state = 'paid' WHERE id = ?", (order_id,))
        return payment_id


def refund_line(db, order_id, position, *, reference, now):
    """Pay back one line of a paid order: exactly what the customer paid for it. Returns the payment's id."""
    with transaction(db):
        if (known := _known(db, reference)) is not None:
            return known
        order = orders.get(db, order_id)
        if order["state"] not in ("paid", "shipped"):
            raise Conflict(f"order {order_id} is {order['state']}: there is nothing to refund")
        line = next((line for line in order["lines"] if line["position"] == position), None)
        if line is None:
            raise Invalid(f"order {order_id} has no line {position}")
        if line["total_cents"] < 0:
            raise Invalid(f"order {order_id}: line {position} would be paid back twice")
        if line["total_cents"] > booked(db, order_id):
            raise Conflict(f"order {order_id}: line {position} costs more than is left of its payments")
        if line["total_cents"] == 0:
            return None
        method = db.execute(
            "SELECT method FROM payment WHERE order_id = ? AND kind = 'charge'", (order_id,)).fetchone()["method"]
        return _book(db, order_id, "refund", method, line["total_cents"], reference, now)
