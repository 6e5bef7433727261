\set product random(1, 50)
\set quantity random(1, 3)
BEGIN;
UPDATE products SET stock = stock - :quantity WHERE id = :product;
INSERT INTO orders (product, quantity, total_cents) SELECT id, :quantity, :quantity * price_cents FROM products WHERE id = :product;
COMMIT;
