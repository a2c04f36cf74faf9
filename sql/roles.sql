-- The roles of a team's installation: who changes the schema, who drives runs, who looks on. They cannot log in; a
-- person grants them to login roles. `iteration db upgrade` runs this after the migrations, as often as it likes; a
-- login that may not make roles skips what it cannot do and owns everything itself. What is as it should be is left
-- alone, and what belongs to others is never touched: a store may share its database.
DO $$
DECLARE
    our_tables CONSTANT name[] := ARRAY['runs', 'attempts', 'operators', 'pins', 'epochs', 'edge_parts',
        'checkpoints', 'checkpoint_requests', 'listener_notices', 'branches', 'committables', 'stops', 'fallbacks',
        'checkpoint_pins', 'checkpoint_needs', 'schema_migrations'];
    wanted text;
    owned record;
BEGIN
    IF (SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        FOREACH wanted IN ARRAY ARRAY['iteration_migration', 'iteration_coordinator', 'iteration_reader'] LOOP
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                BEGIN
                    EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
                EXCEPTION WHEN duplicate_object OR unique_violation THEN
                    NULL; -- roles are the server's: an upgrade of another database was quicker
                END;
            END IF;
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_migration')
       AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO iteration_migration', current_schema());
        FOR owned IN SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace
            AND relkind IN ('r', 'v') AND relname = ANY (our_tables)
            AND relowner <> 'iteration_migration'::regrole LOOP
            EXECUTE format('ALTER TABLE %I OWNER TO iteration_migration', owned.relname);
        END LOOP;
        FOR owned IN SELECT DISTINCT tgfoid::regprocedure AS guard FROM pg_trigger
            JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
            WHERE NOT tgisinternal AND relname = ANY (our_tables)
                AND relnamespace = current_schema()::regnamespace
                AND proowner <> 'iteration_migration'::regrole LOOP
            EXECUTE format('ALTER FUNCTION %s OWNER TO iteration_migration', owned.guard);
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_coordinator') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO iteration_coordinator', current_schema());
        GRANT SELECT, INSERT, UPDATE ON runs, attempts, operators, pins, epochs, edge_parts, checkpoints,
            checkpoint_requests, listener_notices, branches, committables, stops, fallbacks TO iteration_coordinator;
        GRANT DELETE ON operators TO iteration_coordinator;
        GRANT SELECT, INSERT, DELETE ON checkpoint_pins TO iteration_coordinator;
        GRANT SELECT ON checkpoint_needs, schema_migrations TO iteration_coordinator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_reader') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO iteration_reader', current_schema());
        GRANT SELECT ON runs, attempts, operators, pins, epochs, edge_parts, checkpoints, checkpoint_pins,
            checkpoint_requests, listener_notices, branches, committables, stops, fallbacks, checkpoint_needs,
            schema_migrations
            TO iteration_reader;
    END IF;
END $$;
