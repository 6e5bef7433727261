# SPDX-License-Identifier: Apache-2.0
"""Figures for the people who run the shop."""


def sales_by_month(db):
    rows = db.execute(
        'SELECT substr(created_at, 1, 7) AS month, COUNT(*) AS orders, SUM(total_cents) AS total_cents'
        " FROM \"order\" WHERE state IN ('paid', 'shipped') GROUP BY month ORDER BY month")
    return [dict(row) for row in rows]


def best_sellers(db, limit=10):
    rows = db.execute(
        'SELECT p.sku, p.name, SUM(l.quantity) AS sold FROM order_line l JOIN "order" o ON o.id = l.order_id'
        " JOIN product p ON p.id = l.product_id WHERE o.state IN ('paid', 'shipped')"
        " GROUP BY p.id ORDER BY sold DESC, p.id LIMIT ?", (limit,))
    return [dict(row) for row in rows]


def unbalanced_orders(db):
    """Ids of paid orders whose payments are not what the order costs (refunds aside)."""
    rows = db.execute(
        'SELECT o.id FROM "order" o LEFT JOIN payment p ON p.order_id = o.id AND p.kind = \'charge\''
        " WHERE o.state IN ('paid', 'shipped') GROUP BY o.id"
        " HAVING COALESCE(SUM(p.amount_cents), 0) <> o.total_cents")
    return [row["id"] for row in rows]
