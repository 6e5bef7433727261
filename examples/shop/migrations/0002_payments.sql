-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE payment (
	id           INTEGER PRIMARY KEY,
	order_id     INTEGER NOT NULL REFERENCES "order" (id),
	kind         TEXT    NOT NULL CHECK (kind IN ('charge', 'refund')),
	method       TEXT    NOT NULL CHECK (method IN ('card', 'transfer', 'voucher')),
	amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
	reference    TEXT    NOT NULL UNIQUE,
	created_at   TEXT    NOT NULL
);
CREATE INDEX payment_order ON payment (order_id);
