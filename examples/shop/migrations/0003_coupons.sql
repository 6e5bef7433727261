-- SPDX-License-Identifier: Apache-2.0
-- A coupon takes basis_points/10000 off an order's subtotal: 1000 is 10 %.
CREATE TABLE coupon (
	code         TEXT    PRIMARY KEY,
	basis_points INTEGER NOT NULL CHECK (basis_points BETWEEN 1 AND 10000),
	expires_at   TEXT
);
CREATE INDEX order_customer ON "order" (customer_id);
