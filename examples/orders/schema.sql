-- 50 products, 50,000 orders that were placed before. What was ever delivered is in stock or in an order: check.sql.
CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL, price_cents int NOT NULL, delivered bigint NOT NULL, stock bigint NOT NULL CHECK (stock >= 0));
CREATE TABLE orders (id bigserial PRIMARY KEY, product int NOT NULL REFERENCES products, quantity int NOT NULL, total_cents bigint NOT NULL,
	placed timestamptz NOT NULL DEFAULT now());

INSERT INTO products SELECT n, 'product ' || n, 100 + n * 17, 100000000, 100000000 FROM generate_series(1, 50) n;
INSERT INTO orders (product, quantity, total_cents) SELECT id, 1 + n % 3, (1 + n % 3) * price_cents FROM generate_series(1, 1000) n, products;
UPDATE products SET stock = delivered - sold FROM (SELECT product, sum(quantity) AS sold FROM orders GROUP BY product) s WHERE product = id;
