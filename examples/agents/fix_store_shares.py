#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A candidate fix of bug 1042: store each line's share of the discount in the database, for all past orders too.

It passes every test, but it rebuilds the order_line table, keeps the old one "just in case", and changes three modules.
"""

import pathlib
import sys

MIGRATION = """-- SPDX-License-Identifier: Apache-2.0
ALTER TABLE order_line RENAME TO order_line_before_0004;
CREATE TABLE order_line (
	order_id       INTEGER NOT NULL REFERENCES "order" (id),
	position       INTEGER NOT NULL,
	product_id     INTEGER NOT NULL REFERENCES product (id),
	quantity       INTEGER NOT NULL CHECK (quantity > 0),
	price_cents    INTEGER NOT NULL CHECK (price_cents >= 0),
	discount_cents INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (order_id, position)
);
INSERT INTO order_line SELECT *, 0 FROM order_line_before_0004;
CREATE TABLE discount_audit (order_id INTEGER, position INTEGER, old_cents INTEGER, new_cents INTEGER, reason TEXT);
"""


def edit(path, *changes):
    text = pathlib.Path(path).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{path} is not what I expected"
        text = text.replace(old, new)
    pathlib.Path(path).write_text(text)


pathlib.Path("migrations/0004_discount_shares.sql").write_text(MIGRATION)
edit("shop/pricing.py", (
    "    return [line.amount_cents * basis_points // 10000 for line in lines]\n",
    """    left, shares = discount(lines, basis_points), []
    for line in lines:
        share = min(line.amount_cents, left, -(-line.amount_cents * basis_points // 10000))
        shares.append(share)
        left -= share
    return shares
"""))
edit("shop/orders.py", (
    "INSERT INTO order_line (order_id, position, product_id, quantity, price_cents) VALUES (?, ?, ?, ?, ?)",
    "INSERT INTO order_line (order_id, position, product_id, quantity, price_cents, discount_cents)\"\n"
    "            \" VALUES (?, ?, ?, ?, ?, ?)",
), (
    "[(order_id, n, product_id, line.quantity, line.price_cents)\n"
    "             for n, ((product_id, _), line) in enumerate(zip(items, lines), 1)]",
    "[(order_id, n, product_id, line.quantity, line.price_cents, share)\n"
    "             for n, ((product_id, _), line, share) in enumerate(\n"
    "                 zip(items, lines, pricing.discount_shares(lines, basis_points)), 1)]",
))
edit("seed.py", (
    'db.execute("INSERT INTO order_line VALUES (?, ?, ?, ?, ?)",',
    'db.execute("INSERT INTO order_line (order_id, position, product_id, quantity, price_cents)"\n'
    '                   " VALUES (?, ?, ?, ?, ?)",',
))

sys.path.insert(0, ".")
from shop import db as database, orders, pricing  # noqa: E402 (the modules as they are now)

db = database.connect()
database.migrate(db)
with database.transaction(db):
    for row in db.execute('SELECT o.id, c.basis_points FROM "order" o JOIN coupon c ON c.code = o.coupon').fetchall():
        stored = orders.stored_lines(db, row["id"])
        lines = [pricing.Line(line["quantity"], line["price_cents"]) for line in stored]
        for line, share in zip(stored, pricing.discount_shares(lines, row["basis_points"])):
            where = (row["id"], line["position"])
            db.execute("UPDATE order_line SET discount_cents = ? WHERE order_id = ? AND position = ?", (share, *where))
            db.execute("INSERT INTO discount_audit VALUES (?, ?, 0, ?, 'bug 1042')", (*where, share))
print("fixed: every share is stored now, also for past orders")
