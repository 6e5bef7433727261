# SPDX-License-Identifier: Apache-2.0
"""Orders: placing, reading, cancelling."""

from . import catalogue, pricing
from .db import transaction
from .errors import Conflict, Invalid, NotFound


def coupon_basis_points(db, code, now):
    """The coupon's share, 0 without a coupon; Invalid when it is unknown or has expired."""
    if code is None:
        return 0
    row = db.execute("SELECT * FROM coupon WHERE code = ?", (code,)).fetchone()
    if row is None:
        raise Invalid(f"no coupon {code!r}")
    if row["expires_at"] is not None and row["expires_at"] <= now:
        raise Invalid(f"coupon {code!r} has expired")
    return row["basis_points"]


def place(db, customer_id, items, *, coupon=None, now):
    """Place an order for items [(product id, quantity)] and take them from stock. Returns its id."""
    if not items:
        raise Invalid("an order needs at least one line")
    if any(quantity < 1 for _, quantity in items):
        raise Invalid("a quantity must be at least 1")
    if db.execute("SELECT 1 FROM customer WHERE id = ?", (customer_id,)).fetchone() is None:
        raise NotFound(f"customer {customer_id}")
    with transaction(db):
        basis_points = coupon_basis_points(db, coupon, now)
        products = [catalogue.product(db, product_id) for product_id, _ in items]
        for product_id, quantity in items:
            catalogue.take_stock(db, product_id, quantity)
        lines = [pricing.Line(q, p["price_cents"]) for (_, q), p in zip(items, products)]
        subtotal, discount = pricing.subtotal(lines), pricing.discount(lines, basis_points)
        order_id = db.execute(
            'INSERT INTO "order" (customer_id, state, coupon, subtotal_cents, discount_cents, total_cents, created_at)'
            " VALUES (?, 'new', ?, ?, ?, ?, ?)",
            (customer_id, coupon, subtotal, discount, subtotal - discount, now),
        ).lastrowid
        db.executemany(
            "INSERT INTO order_line (order_id, position, product_id, quantity, price_cents) VALUES (?, ?, ?, ?, ?)",
            [(order_id, n, product_id, line.quantity, line.price_cents)
             for n, ((product_id, _), line) in enumerate(zip(items, lines), 1)],
        )
    return order_id


def stored_lines(db, order_id):
    rows = db.execute("SELECT * FROM order_line WHERE order_id = ? ORDER BY position", (order_id,))
    return [dict(row) for row in rows]


def get(db, order_id):
    """The order with its lines; each line says what the customer pays for it."""
    row = db.execute('SELECT * FROM "order" WHERE id = ?', (order_id,)).fetchone()
    if row is None:
        raise NotFound(f"order {order_id}")
    order = dict(row)
    order["lines"] = stored_lines(db, order_id)
    lines = [pricing.Line(line["quantity"], line["price_cents"]) for line in order["lines"]]
    basis_points = 0
    if order["coupon"] is not None:
        coupon = db.execute("SELECT basis_points FROM coupon WHERE code = ?", (order["coupon"],)).fetchone()
        basis_points = coupon["basis_points"]
    for line, total in zip(order["lines"], pricing.line_totals(lines, basis_points)):
        line["total_cents"] = total
    return order


def cancel(db, order_id):
    """Cancel an order that is not paid yet and put its goods back."""
    with transaction(db):
        order = get(db, order_id)
        if order["state"] != "new":
            raise Conflict(f"order {order_id} is {order['state']}: it cannot be cancelled")
        for line in order["lines"]:
            catalogue.return_stock(db, line["product_id"], line["quantity"])
        db.execute("UPDATE \"order\" SET state = 'cancelled' WHERE id = ?", (order_id,))
