-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE product (
	id          INTEGER PRIMARY KEY,
	sku         TEXT    NOT NULL UNIQUE,
	name        TEXT    NOT NULL,
	category    TEXT    NOT NULL,
	price_cents INTEGER NOT NULL CHECK (price_cents >= 0)
);
CREATE TABLE customer (
	id         INTEGER PRIMARY KEY,
	email      TEXT NOT NULL UNIQUE,
	name       TEXT NOT NULL,
	country    TEXT NOT NULL,
	created_at TEXT NOT NULL
);
CREATE TABLE stock (
	product_id INTEGER PRIMARY KEY REFERENCES product (id),
	quantity   INTEGER NOT NULL CHECK (quantity >= 0)
);
CREATE TABLE "order" (
	id             INTEGER PRIMARY KEY,
	customer_id    INTEGER NOT NULL REFERENCES customer (id),
	state          TEXT    NOT NULL CHECK (state IN ('new', 'paid', 'shipped', 'cancelled')),
	coupon         TEXT,
	subtotal_cents INTEGER NOT NULL,
	discount_cents INTEGER NOT NULL,
	total_cents    INTEGER NOT NULL CHECK (total_cents = subtotal_cents - discount_cents),
	created_at     TEXT    NOT NULL
);
CREATE TABLE order_line (
	order_id    INTEGER NOT NULL REFERENCES "order" (id),
	position    INTEGER NOT NULL,
	product_id  INTEGER NOT NULL REFERENCES product (id),
	quantity    INTEGER NOT NULL CHECK (quantity > 0),
	price_cents INTEGER NOT NULL CHECK (price_cents >= 0),
	PRIMARY KEY (order_id, position)
);
