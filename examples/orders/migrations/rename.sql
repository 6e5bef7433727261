-- "While we are at it": total_cents becomes total, since there is a currency now.
BEGIN;
ALTER TABLE orders ADD COLUMN currency text NOT NULL DEFAULT 'EUR';
ALTER TABLE orders RENAME COLUMN total_cents TO total;
COMMIT;
