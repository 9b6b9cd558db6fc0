-- Which integer keys run out: all tables that this user may read, the fullest key first, by indexes and catalogues alone.
-- An INT key ends at 2,147,483,647, and the next INSERT fails. Run the statement of your database.

-- PostgreSQL: primary keys; "ends" is the end of the column, of its sequence, or of a foreign key that is narrower
WITH whole (oid, ends) AS (
    VALUES ('int2'::regtype::oid, 32767), ('int4'::regtype, 2147483647), ('int8'::regtype, 9223372036854775807)
)
SELECT format('%s.%I', relid, attname) AS key_column, format_type(atttypid, NULL) AS type, reached, last AS ends,
       round(100 * reached::numeric / last, 1) AS percent
FROM pg_index
JOIN pg_class ON pg_class.oid = indrelid AND relkind IN ('r', 'p') AND NOT relispartition AND relpersistence <> 't'
JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
JOIN whole ON whole.oid = atttypid
CROSS JOIN LATERAL (SELECT indrelid::regclass AS relid) named
LEFT JOIN pg_sequence ON seqrelid = pg_get_serial_sequence(relid::text, attname)::regclass
LEFT JOIN LATERAL (
    SELECT min(narrow.ends) AS ends FROM pg_constraint
    JOIN pg_attribute referring ON referring.attrelid = conrelid AND referring.attnum = conkey[1]
    JOIN whole narrow ON narrow.oid = referring.atttypid
    WHERE contype = 'f' AND confrelid = indrelid AND confkey[1] = pg_attribute.attnum
) foreign_keys ON true
CROSS JOIN LATERAL (SELECT least(whole.ends, seqmax, foreign_keys.ends) AS last) ends
CROSS JOIN LATERAL (
    SELECT greatest(0, pg_sequence_last_value(seqrelid), (xpath('//max/text()', query_to_xml(
        format('SELECT max(%I) FROM %s', attname, relid), true, true, '')))[1]::text::bigint) AS reached
) read
WHERE indisprimary AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
  AND has_table_privilege(indrelid, 'SELECT')
ORDER BY percent DESC, key_column;

-- MySQL and MariaDB: AUTO_INCREMENT columns of this database; the first line is for MySQL, which may count a day late
SET @fresh = 1 /*!80000 , SESSION information_schema_stats_expiry = 0 */;
SELECT CONCAT(table_name, '.', column_name) AS key_column, column_type AS type, auto_increment - 1 AS reached,
       ends, ROUND(100.0 * (auto_increment - 1) / ends, 1) AS percent
FROM (
    SELECT table_schema, table_name, column_name, column_type, ~0 >> (65 - (column_type LIKE '%unsigned%')
        - CASE data_type WHEN 'tinyint' THEN 8 WHEN 'smallint' THEN 16 WHEN 'mediumint' THEN 24 WHEN 'int' THEN 32
          ELSE 64 END) AS ends
    FROM information_schema.columns WHERE extra LIKE '%auto_increment%' AND table_schema = DATABASE()
) counted
JOIN information_schema.tables USING (table_schema, table_name)
WHERE auto_increment IS NOT NULL
ORDER BY percent DESC, key_column;
