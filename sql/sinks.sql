-- What a Postgres sink says to the database of its table. Names in braces are put in as quoted identifiers, or lists of
-- them; whatever is a value is a parameter. Nothing here reads or writes the store's own tables.

-- set_time_zone: an instant that goes into a column without a zone is told in UTC, wherever the process and the server are
SET TIME ZONE 'UTC';

-- lock_tables: wait while another process creates the tables of sinks, which two at once cannot
SELECT pg_advisory_xact_lock(5283470213462);

-- create_publications: what was committed into the tables of a schema
CREATE TABLE IF NOT EXISTS {publications} (
    target text NOT NULL,
    run_id text NOT NULL,
    output text NOT NULL,
    epoch bigint NOT NULL,
    fencing_token bigint NOT NULL,
    run_key text NOT NULL,
    rows bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (target, run_id, output, epoch)
);

-- create_target: a table as the rows are, where there is none
CREATE TABLE IF NOT EXISTS {target} AS SELECT {columns} FROM {rows} WITH NO DATA;

-- list_columns: the columns of a table, their types, what these hold (behind domains, in arrays), who needs a value, who takes none
WITH RECURSIVE held (attnum, type, modifier) AS (
    SELECT attnum, atttypid, atttypmod
    FROM pg_catalog.pg_attribute
    WHERE attrelid = CAST($1 AS regclass) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum,
        CASE WHEN typbasetype <> 0 THEN typbasetype ELSE typelem END,
        CASE WHEN typbasetype <> 0 THEN typtypmod ELSE modifier END
    FROM held JOIN pg_catalog.pg_type ON pg_type.oid = type
    WHERE typbasetype <> 0 OR typcategory = 'A'
)
SELECT attname AS name,
    pg_catalog.format_type(atttypid, atttypmod) AS type,
    pg_catalog.format_type(held.type, CASE held.type WHEN CAST('numeric' AS regtype) THEN modifier END) AS held,
    attnotnull AND NOT atthasdef AND attidentity = '' AS is_required,
    attgenerated <> '' OR attidentity = 'a' AS is_computed
FROM held JOIN pg_catalog.pg_type ON pg_type.oid = held.type JOIN pg_catalog.pg_attribute USING (attnum)
WHERE attrelid = CAST($1 AS regclass) AND typbasetype = 0 AND typcategory <> 'A'
ORDER BY attnum;

-- lock_staging: wait for a prepare of the same transaction whose connection was lost, while its server goes on
SELECT pg_advisory_xact_lock(hashtextextended($1, 5283470213462));

-- create_staging: the table's columns, with what it asks of values and of rows among themselves; nobody reads it
CREATE TABLE {staging} (LIKE {target} INCLUDING CONSTRAINTS INCLUDING INDEXES);

-- drop_column: a column that the rows do not have is not asked of them
ALTER TABLE {staging} DROP COLUMN {column} CASCADE;

-- fill_staging: the rows, as the table will hold them
INSERT INTO {staging} ({columns}) SELECT {columns} FROM {rows};

-- bound_statements: let none of these statements take longer, in a transaction that holds more than the target
SELECT set_config('statement_timeout', %(milliseconds)s, true);

-- insert_publication: take the transaction's turn, which it has once, whoever else is at it; no row means that it was had
INSERT INTO {publications} (target, run_id, output, epoch, fencing_token, run_key, rows)
VALUES (%(target)s, %(run_id)s, %(output)s, %(epoch)s, %(fencing_token)s, %(run_key)s, %(rows)s)
ON CONFLICT DO NOTHING
RETURNING run_id;

-- find_publication: which attempt had the turn
SELECT fencing_token
FROM {publications}
WHERE target = %(target)s AND run_id = %(run_id)s AND output = %(output)s AND epoch = %(epoch)s;

-- defer_constraints: let no row fail because another output's rows were checked before it, in the same transaction
SET CONSTRAINTS ALL DEFERRED;

-- publish_rows: show the rows, together, when the transaction commits
INSERT INTO {target} ({columns}) SELECT {columns} FROM {staging};

-- check_constraints: check now what the table would have checked at the COMMIT, which may be another one's
SET CONSTRAINTS ALL IMMEDIATE;

-- hand_back: leave another one's transaction as the store begins it: checked at the COMMIT, with its own time limit
SET CONSTRAINTS ALL DEFERRED;
SET LOCAL statement_timeout TO DEFAULT;

-- drop_staging: drop what a transaction prepared
DROP TABLE IF EXISTS {staging};

-- find_owner: who made a staging table, and as whom this login acts
SELECT pg_get_userbyid(relowner) AS owner, current_user AS login
FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relname = %(staging)s;

-- check_target: may this login do what a sink does?
SELECT has_schema_privilege($1, 'CREATE'),
    has_database_privilege(current_database(), 'TEMPORARY'),
    to_regclass($2) IS NULL OR (has_table_privilege($2, 'INSERT') AND has_table_privilege($2, 'SELECT')),
    to_regclass($3) IS NULL OR (has_table_privilege($3, 'INSERT') AND has_table_privilege($3, 'SELECT'));
