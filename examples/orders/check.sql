\pset format unaligned
\pset tuples_only on
SELECT 'orders ' || (SELECT count(*) FROM orders) || ', pieces lost ' || (SELECT sum(abs(delivered - stock - coalesce(sold, 0)))
	FROM products LEFT JOIN (SELECT product, sum(quantity) AS sold FROM orders GROUP BY product) s ON product = id)
	|| ', server up since ' || to_char(pg_postmaster_start_time(), 'HH24:MI:SS.US');
