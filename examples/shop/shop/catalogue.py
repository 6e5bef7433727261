# SPDX-License-Identifier: Apache-2.0
"""Products and stock."""

from .errors import Conflict, Invalid, NotFound


def product(db, product_id):
    row = db.execute(
        "SELECT p.*, s.quantity AS stock FROM product p JOIN stock s ON s.product_id = p.id WHERE p.id = ?",
        (product_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"product {product_id}")
    return dict(row)


def products(db, *, category=None, after=0, limit=50):
    """A page of products with ids above `after`."""
    if not 1 <= limit <= 200:
        raise Invalid("limit must be between 1 and 200")
    rows = db.execute(
        "SELECT p.*, s.quantity AS stock FROM product p JOIN stock s ON s.product_id = p.id"
        " WHERE p.id > ? AND (? IS NULL OR p.category = ?) ORDER BY p.id LIMIT ?",
        (after, category, category, limit),
    )
    return [dict(row) for row in rows]


def take_stock(db, product_id, quantity):
    """Remove `quantity` pieces; Conflict when there are not as many."""
    changed = db.execute(
        "UPDATE stock SET quantity = quantity - ? WHERE product_id = ? AND quantity >= ?",
        (quantity, product_id, quantity),
    ).rowcount
    if changed == 0:
        raise Conflict(f"product {product_id}: fewer than {quantity} in stock")


def return_stock(db, product_id, quantity):
    db.execute("UPDATE stock SET quantity = quantity + ? WHERE product_id = ?", (quantity, product_id))
