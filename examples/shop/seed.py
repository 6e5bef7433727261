#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Build the shop's database: python3 seed.py [FILE]

The same bytes of data every time (a seeded generator, a fixed calendar): 240 products, 600 customers, 1,800 orders.
"""

import datetime
import pathlib
import random
import sys

from shop import db as database
from shop import pricing

FIRST_DAY = datetime.datetime(2025, 1, 1, 8, 0, 0)
COUPONS = {"SPRING10": (1000, None), "WELCOME5": (500, None), "STAFF25": (2500, None), "OLD15": (1500, "2025-02-01T00:00:00Z")}
CATEGORIES = {
    "tea": ["Assam", "Darjeeling", "Sencha", "Oolong", "Rooibos", "Earl Grey"],
    "coffee": ["Espresso", "Filter", "Decaf", "Peaberry", "Cold Brew"],
    "cups": ["Mug", "Bowl", "Glass", "Flask"],
    "tools": ["Kettle", "Grinder", "Scale", "Strainer", "Timer"],
    "samples": ["Sample"],
}
SIZES = ["50 g", "100 g", "250 g", "500 g", "small", "medium", "large", "gift box"]
FIRST_NAMES = "Ada Bruno Chiara Dmitri Elif Farid Greta Hiro Ines Jonas Kofi Lena Marek Nora Otto Priya Quinn Rosa Samir Tove".split()
LAST_NAMES = "Almeida Berg Costa Dubois Eriksen Fischer Garcia Haddad Ivanov Jansen Kaya Larsen Moreau Novak Okafor Petrov Rossi Silva Tanaka Weber".split()
COUNTRIES = "DE FR ES IT NL PL SE PT DK AT".split()


def stamp(minutes):
    return (FIRST_DAY + datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_products(db, rng, count=240):
    """Products; samples cost nothing and go with other orders."""
    for product_id in range(1, count + 1):
        category = rng.choice(list(CATEGORIES))
        name = f"{rng.choice(CATEGORIES[category])}, {rng.choice(SIZES)}"
        price = 0 if category == "samples" else rng.randrange(149, 9000, 10) + rng.choice((0, 5, 9))
        db.execute("INSERT INTO product VALUES (?, ?, ?, ?, ?)",
                   (product_id, f"{category[:3].upper()}-{product_id:04d}", name, category, price))
        db.execute("INSERT INTO stock VALUES (?, ?)", (product_id, rng.randrange(20, 400)))


def add_customers(db, rng, count=600):
    for customer_id in range(1, count + 1):
        first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
        db.execute("INSERT INTO customer VALUES (?, ?, ?, ?, ?)",
                   (customer_id, f"{first}.{last}.{customer_id}@example.org".lower(), f"{first} {last}",
                    rng.choice(COUNTRIES), stamp(rng.randrange(0, 60 * 24 * 30))))


def add_order(db, rng, order_id, prices, minutes):
    chosen = rng.sample(sorted(prices), rng.choice((1, 1, 2, 2, 3, 4, 5)))
    lines = [pricing.Line(rng.choice((1, 1, 1, 2, 3, 6)), prices[product_id]) for product_id in chosen]
    code = rng.choice((None, None, None, "SPRING10", "WELCOME5", "STAFF25"))
    basis_points = COUPONS[code][0] if code else 0
    subtotal, discount = pricing.subtotal(lines), pricing.discount(lines, basis_points)
    state = rng.choices(("new", "paid", "shipped", "cancelled"), (1, 3, 8, 1))[0]
    db.execute('INSERT INTO "order" VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
               (order_id, rng.randrange(1, 601), state, code, subtotal, discount, subtotal - discount, stamp(minutes)))
    for position, (product_id, line) in enumerate(zip(chosen, lines), 1):
        db.execute("INSERT INTO order_line VALUES (?, ?, ?, ?, ?)",
                   (order_id, position, product_id, line.quantity, line.price_cents))
    if state in ("paid", "shipped") and subtotal > discount:
        db.execute("INSERT INTO payment (order_id, kind, method, amount_cents, reference, created_at)"
                   " VALUES (?, 'charge', ?, ?, ?, ?)",
                   (order_id, rng.choice(("card", "card", "transfer", "voucher")), subtotal - discount,
                    f"seed-{order_id}", stamp(minutes + rng.randrange(1, 600))))


def seed(db):
    """Fill an empty, migrated database."""
    rng = random.Random(20250101)
    with database.transaction(db):
        add_products(db, rng)
        add_customers(db, rng)
        db.executemany("INSERT INTO coupon VALUES (?, ?, ?)", [(code, *rest) for code, rest in COUPONS.items()])
        prices = {row["id"]: row["price_cents"] for row in db.execute("SELECT id, price_cents FROM product")}
        minutes = 0
        for order_id in range(1, 1801):
            minutes += rng.randrange(20, 620)
            add_order(db, rng, order_id, prices, minutes)


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else database.DEFAULT_PATH
    path.unlink(missing_ok=True)
    db = database.connect(path, must_exist=False)
    database.migrate(db)
    seed(db)
    tables = [row["name"] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {table: db.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()[0] for table in tables}
    print(f"{path.name}: " + ", ".join(f"{count} {table}" for table, count in rows.items()))


if __name__ == "__main__":
    main()
