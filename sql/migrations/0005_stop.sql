-- The fifth version: a person stops a run, which somebody resumes, or lets it drain (I20).

CREATE TABLE stops (
    stop_id       uuid PRIMARY KEY,
    run_id        uuid NOT NULL REFERENCES runs,
    kind          text NOT NULL,
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at    timestamptz,
    resumed_by    text,
    resumed_at    timestamptz,
    CONSTRAINT stops_kind_check CHECK (kind IN ('STOP', 'DRAIN')),
    CONSTRAINT stops_stopped_check CHECK (stopped_at IS NULL OR kind = 'STOP'),
    CONSTRAINT stops_resumed_check CHECK (
        (resumed_by IS NULL) = (resumed_at IS NULL) AND (resumed_at IS NULL OR stopped_at IS NOT NULL)
    )
);
-- Of a run's requests at most one is in force (I20).
CREATE UNIQUE INDEX stops_in_force_key ON stops (run_id) WHERE resumed_at IS NULL;
CREATE INDEX stops_run_idx ON stops (run_id, resumed_at);

COMMENT ON TABLE stops IS 'Who asked a run to stop or to drain, when it stopped, and who let it go on (I20).';

-- A request is who asked what of one run that goes on; it is answered once, by a run that is STOPPED, and resumed once.
CREATE FUNCTION stops_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.stopped_at IS NOT NULL OR NOT EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
               AND runs.status = 'RUNNING') THEN
            RAISE EXCEPTION 'run % does not go on and cannot stop', NEW.run_id USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.stop_id, NEW.run_id, NEW.kind, NEW.requested_by, NEW.requested_at)
       IS DISTINCT FROM (OLD.stop_id, OLD.run_id, OLD.kind, OLD.requested_by, OLD.requested_at) THEN
        RAISE EXCEPTION 'the identity of stop % cannot change', OLD.stop_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.stopped_at IS NOT NULL AND NEW.stopped_at IS DISTINCT FROM OLD.stopped_at
       OR OLD.resumed_at IS NOT NULL AND (NEW.resumed_by, NEW.resumed_at)
          IS DISTINCT FROM (OLD.resumed_by, OLD.resumed_at) THEN
        RAISE EXCEPTION 'stop % is answered', OLD.stop_id USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status = 'STOPPED') THEN
        RAISE EXCEPTION 'run % is not stopped', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER stops_guard BEFORE INSERT OR UPDATE ON stops FOR EACH ROW EXECUTE FUNCTION stops_guard();

-- A run that is stopped does not change, but for its revision, until somebody resumes it.
CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IN ('FINISHED', 'STOPPED', 'DELETED') AND NEW.status = OLD.status
       AND to_jsonb(NEW) - 'revision' <> to_jsonb(OLD) - 'revision' THEN
        RAISE EXCEPTION 'run % is over or stopped and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fencing_token < OLD.fencing_token OR NEW.last_durable_epoch < OLD.last_durable_epoch
       OR NEW.last_checkpoint_id < OLD.last_checkpoint_id OR NEW.aborted_through < OLD.aborted_through
       OR NEW.revision < OLD.revision THEN
        RAISE EXCEPTION 'run %: tokens, durable epochs and checkpoint ids only grow', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.last_durable_epoch <> OLD.last_durable_epoch THEN
        IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch = NEW.last_durable_epoch)
           OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                      AND epochs.epoch BETWEEN OLD.last_durable_epoch + 1 AND NEW.last_durable_epoch
                      AND epochs.status IN ('OPEN', 'ALIGNED')) THEN
            RAISE EXCEPTION 'run %: no completed checkpoint makes every epoch up to % durable', OLD.run_id,
                NEW.last_durable_epoch USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- Who stops a run asked for it, nobody drives it then, and nothing of it waits; who resumes it says so first.
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
            ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING'), ('RUNNING', 'STOPPED'),
            ('FAILED', 'STOPPED'), ('STOPPED', 'RUNNING'), ('RUNNING', 'DELETED'), ('TERMINATING', 'DELETED'),
            ('FAILED', 'DELETED'), ('FINISHED', 'DELETED'), ('STOPPED', 'DELETED')) THEN
            RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status IN ('STOPPED', 'DELETED') AND EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
               AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'run % is driven and cannot be stopped or deleted', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (NEW.status = 'STOPPED' OR OLD.status = 'STOPPED' AND NEW.status = 'RUNNING')
           AND (NEW.status = 'STOPPED') <> EXISTS (SELECT FROM stops WHERE stops.run_id = OLD.run_id
               AND stops.kind = 'STOP' AND stops.resumed_at IS NULL) THEN
            RAISE EXCEPTION 'nobody asked run % to go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.terminated_by = 'drained' AND OLD.terminated_by IS NULL AND NOT EXISTS (SELECT FROM stops
               WHERE stops.run_id = OLD.run_id AND stops.kind = 'DRAIN') THEN
            RAISE EXCEPTION 'nobody asked run % to drain', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status IN ('FINISHED', 'STOPPED', 'DELETED') THEN
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
        WHEN NEW.status NOT IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED', 'STOPPED', 'DELETED')
            THEN 'runs_status_check'
        WHEN NEW.fencing_token < 0 THEN 'runs_fencing_token_check'
        WHEN NEW.last_durable_epoch < -1 THEN 'runs_last_durable_epoch_check'
        WHEN NEW.aborted_through NOT BETWEEN 0 AND NEW.last_checkpoint_id + 1 THEN 'runs_aborted_through_check'
        WHEN NEW.terminated_by NOT IN ('criteria', 'empty_feedback', 'max_epochs', 'drained')
            THEN 'runs_terminated_by_check'
        WHEN NEW.status IN ('TERMINATING', 'FINISHED')
            AND (NEW.terminated_by IS NULL OR NEW.last_durable_epoch < 0) THEN 'runs_terminating_check'
        WHEN NEW.status IN ('RUNNING', 'STOPPED') AND NEW.terminated_by IS NOT NULL THEN 'runs_running_check'
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
