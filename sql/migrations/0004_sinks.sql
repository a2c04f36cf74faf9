-- The fourth version: what sinks prepared of durable epochs, and whether they show it (I19).

CREATE TABLE committables (
    run_id         uuid NOT NULL,
    epoch          bigint NOT NULL,
    output         text NOT NULL,
    fencing_token  bigint NOT NULL,
    target         text NOT NULL,
    content        jsonb NOT NULL,
    stored_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at   timestamptz,
    CONSTRAINT committables_pkey PRIMARY KEY (run_id, epoch, output),
    CONSTRAINT committables_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs,
    CONSTRAINT committables_output_check CHECK (output <> ''),
    CONSTRAINT committables_content_check CHECK (jsonb_typeof(content) = 'object')
);
CREATE INDEX committables_uncommitted_idx ON committables (run_id) WHERE committed_at IS NULL;

COMMENT ON TABLE committables IS
    'What a sink prepared of an output in a durable epoch: a row is the decision to commit it, once (I19).';

-- It is stored when its epoch is durable, and changes once, when the sink shows it (I19).
CREATE FUNCTION committables_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.committed_at IS NOT NULL OR to_jsonb(NEW) - 'committed_at' <> to_jsonb(OLD) - 'committed_at' THEN
            RAISE EXCEPTION 'what was prepared of % in epoch % is committed once, as it is', OLD.output, OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch
                   AND epochs.fencing_token = NEW.fencing_token AND epochs.status = 'DURABLE') THEN
        RAISE EXCEPTION 'epoch % is not durable, and publishes nothing', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER committables_guard BEFORE INSERT OR UPDATE ON committables
    FOR EACH ROW EXECUTE FUNCTION committables_guard();

-- A run is over when nothing of it waits to be committed.
CREATE OR REPLACE FUNCTION runs_row_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.run_id, NEW.run_key, NEW.reference, NEW.max_buckets, NEW.created_at)
           IS DISTINCT FROM (OLD.run_id, OLD.run_key, OLD.reference, OLD.max_buckets, OLD.created_at) THEN
            RAISE EXCEPTION 'the identity of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF (NEW.attempt_id IS DISTINCT FROM OLD.attempt_id) <> (NEW.fencing_token <> OLD.fencing_token) THEN
            RAISE EXCEPTION 'who holds the token of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('RUNNING', 'TERMINATING'), ('TERMINATING', 'FINISHED'), ('RUNNING', 'FAILED'),
            ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING'), ('RUNNING', 'DELETED'),
            ('TERMINATING', 'DELETED'), ('FAILED', 'DELETED'), ('FINISHED', 'DELETED')) THEN
            RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'DELETED' AND EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
               AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'run % is driven and cannot be deleted', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status IN ('FINISHED', 'DELETED') THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'PENDING')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED') THEN
                RAISE EXCEPTION 'run % has something that is not durable', OLD.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.status = 'FINISHED' AND EXISTS (SELECT FROM committables WHERE committables.run_id = OLD.run_id
               AND committables.committed_at IS NULL) THEN
            RAISE EXCEPTION 'run % has something that is not committed', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.run_key = '' THEN 'runs_run_key_check'
        WHEN NEW.max_buckets < 1 THEN 'runs_max_buckets_check'
        WHEN NEW.max_epochs < 1 THEN 'runs_max_epochs_check'
        WHEN NEW.status NOT IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED', 'DELETED') THEN 'runs_status_check'
        WHEN NEW.fencing_token < 0 THEN 'runs_fencing_token_check'
        WHEN NEW.last_durable_epoch < -1 THEN 'runs_last_durable_epoch_check'
        WHEN NEW.aborted_through NOT BETWEEN 0 AND NEW.last_checkpoint_id + 1 THEN 'runs_aborted_through_check'
        WHEN NEW.terminated_by NOT IN ('criteria', 'empty_feedback', 'max_epochs') THEN 'runs_terminated_by_check'
        WHEN NEW.status IN ('TERMINATING', 'FINISHED')
            AND (NEW.terminated_by IS NULL OR NEW.last_durable_epoch < 0) THEN 'runs_terminating_check'
        WHEN NEW.status = 'RUNNING' AND NEW.terminated_by IS NOT NULL THEN 'runs_running_check'
        WHEN (NEW.status = 'DELETED') <> (NEW.deleted_by IS NOT NULL)
            OR (NEW.status = 'DELETED') <> (NEW.deleted_at IS NOT NULL) THEN 'runs_deleted_check'
        WHEN NEW.status <> 'DELETED' AND ((NEW.status = 'FINISHED') <> (NEW.outputs IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.state_digest IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.finished_at IS NOT NULL)) THEN 'runs_finished_check'
        WHEN NEW.status <> 'DELETED' AND (NEW.status = 'FAILED') <> (NEW.failure IS NOT NULL) THEN 'runs_failure_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'run % breaks %', NEW.run_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs';
    END IF;
    RETURN NEW;
END $$;
