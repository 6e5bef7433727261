-- By hand, row by row: the lock that ALTER takes is held until the last row is written.
BEGIN;
ALTER TABLE orders ADD COLUMN currency text;
UPDATE orders SET currency = 'EUR';
ALTER TABLE orders ALTER COLUMN currency SET NOT NULL, ALTER COLUMN currency SET DEFAULT 'EUR';
COMMIT;
