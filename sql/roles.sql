-- The roles of a team's installation: who changes the schema, who drives runs, who looks on. They cannot log in; a
-- person grants them to login roles. `iteration db upgrade` runs this after the migrations, as often as it likes; a
-- login that may not make roles skips what it cannot do and owns everything itself.
DO $$
DECLARE
    wanted text;
    owned record;
BEGIN
    IF (SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        FOREACH wanted IN ARRAY ARRAY['iteration_migration', 'iteration_coordinator', 'iteration_reader'] LOOP
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            END IF;
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_migration')
       AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO iteration_migration', current_schema());
        FOR owned IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
            EXECUTE format('ALTER TABLE %I OWNER TO iteration_migration', owned.tablename);
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_coordinator') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO iteration_coordinator', current_schema());
        GRANT SELECT, INSERT, UPDATE ON runs, attempts, operators, pins, epochs, head_reports, checkpoints,
            acknowledgements TO iteration_coordinator;
        GRANT SELECT ON schema_migrations TO iteration_coordinator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'iteration_reader') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO iteration_reader', current_schema());
        GRANT SELECT ON runs, attempts, operators, pins, epochs, head_reports, checkpoints, acknowledgements,
            schema_migrations TO iteration_reader;
    END IF;
END $$;
