-- What the records of an epoch ask takes as long in a store whose tables were never analysed, however many epochs a run has:
-- a plan that is made when they are empty, and kept, reads no more of an index than what is asked for.

-- These two hold all that is asked of a pending checkpoint, or of an aligned epoch, and leave nothing to filter: no other
-- index can tie with them.
DROP INDEX checkpoints_pending_idx;
CREATE INDEX checkpoints_pending_idx ON checkpoints (run_id, checkpoint_id) WHERE status = 'PENDING';
DROP INDEX epochs_aligned_idx;
CREATE INDEX epochs_aligned_idx ON epochs (run_id, epoch) WHERE status = 'ALIGNED';

CREATE OR REPLACE FUNCTION attempts_begun_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
BEGIN
    SELECT runs.status, least(
            (SELECT epochs.epoch FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.status = 'OPEN'
             AND epochs.fencing_token < NEW.fencing_token),
            (SELECT min(epochs.epoch) FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.status = 'ALIGNED'
             AND epochs.fencing_token < NEW.fencing_token)) AS is_left,
        EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
            AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS is_live
    INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    IF run.is_live AND run.status NOT IN ('RUNNING', 'TERMINATING') OR run.is_left IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % of run % cannot begin: the run is %, epoch % of another attempt is left',
            NEW.fencing_token, NEW.run_id, run.status, coalesce(CAST(run.is_left AS text), 'none')
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION listener_notices_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run runs;
    newest record;
BEGIN
    SELECT * INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    IF NEW.epoch > run.last_durable_epoch THEN
        RAISE EXCEPTION 'epoch % is not durable', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    SELECT told.epoch, told.is_final INTO newest FROM listener_notices AS told
    WHERE told.run_id = NEW.run_id AND told.listener_id = NEW.listener_id ORDER BY told.epoch DESC LIMIT 1;
    IF newest.is_final <> NEW.is_final THEN
        RAISE EXCEPTION 'listener % hears of epochs, or of the end, not of both', NEW.listener_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.is_final THEN
        IF run.status <> 'TERMINATING' OR NEW.epoch <> run.last_durable_epoch THEN
            RAISE EXCEPTION 'run % did not end with epoch %', NEW.run_id, NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF newest.epoch IS NULL THEN
        SELECT coalesce(max(branches.epoch), -1) AS epoch INTO newest FROM branches WHERE branches.run_id = NEW.run_id;
    END IF;
    IF NEW.epoch <> newest.epoch + 1 THEN
        RAISE EXCEPTION 'listener % has heard of no epoch before %', NEW.listener_id, NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION runs_published_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lacking record;
BEGIN
    SELECT epochs.epoch, sink.output INTO lacking
    FROM epochs CROSS JOIN jsonb_each(NEW.definition -> 'sinks') AS sink (output, each_epoch)
    WHERE epochs.run_id = NEW.run_id AND epochs.status = 'DURABLE'
        AND epochs.epoch > OLD.last_durable_epoch AND epochs.epoch <= NEW.last_durable_epoch
        AND (sink.each_epoch = 'true' OR epochs.decision ->> 'terminated_by' IS NOT NULL)
        AND (SELECT count(*) FROM committables WHERE committables.run_id = NEW.run_id  -- a join might read the run's all
            AND committables.epoch = epochs.epoch AND committables.output = sink.output) = 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'epoch % of run % is durable, and % of it is not stored', lacking.epoch, NEW.run_id,
            lacking.output USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION attempts_ignore_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM edge_parts WHERE edge_parts.run_id = NEW.run_id AND edge_parts.voided_at IS NULL
               AND edge_parts.fencing_token < NEW.fencing_token AND edge_parts.epoch > (
                   SELECT runs.last_durable_epoch FROM runs WHERE runs.run_id = NEW.run_id))
       OR EXISTS (SELECT FROM edge_parts WHERE edge_parts.run_id = NEW.run_id AND edge_parts.voided_at IS NULL
               AND edge_parts.fencing_token < NEW.fencing_token AND edge_parts.epoch = -1 AND (
                   SELECT operators.finished_at FROM operators WHERE operators.run_id = NEW.run_id
                   AND operators.operator_id = edge_parts.operator_id) IS NULL) THEN
        RAISE EXCEPTION 'attempt % of run % ignores edges, and leaves some', NEW.fencing_token, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION edge_parts_void_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.voided_at IS NOT NULL OR NEW.voided_at IS NULL
       OR to_jsonb(NEW) - 'voided_at' IS DISTINCT FROM to_jsonb(OLD) - 'voided_at' THEN
        RAISE EXCEPTION 'a part of operator % in epoch % is voided once, and else cannot change',
            OLD.operator_id, OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL AND (
                       OLD.epoch > (SELECT fallbacks.epoch FROM fallbacks WHERE fallbacks.run_id = OLD.run_id
                               AND fallbacks.fencing_token = attempts.fencing_token)
                           AND OLD.fencing_token < attempts.fencing_token
                           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                               AND epochs.fencing_token = attempts.fencing_token AND epochs.status = 'OPEN')
                           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                               AND epochs.fencing_token = attempts.fencing_token AND epochs.status = 'ALIGNED')
                       OR (attempts.definition_changes IS NOT NULL OR attempts.ignores_edges AND (OLD.epoch >= 0
                               OR NOT EXISTS (SELECT FROM operators WHERE operators.run_id = OLD.run_id
                                   AND operators.operator_id = OLD.operator_id AND operators.finished_at IS NOT NULL)))
                           AND OLD.epoch NOT BETWEEN 0 AND (SELECT runs.last_durable_epoch FROM runs
                               WHERE runs.run_id = OLD.run_id)
                           AND attempts.fencing_token > coalesce((SELECT epochs.fencing_token FROM epochs
                               WHERE epochs.run_id = OLD.run_id AND epochs.status <> 'VOIDED'
                               ORDER BY epochs.epoch DESC LIMIT 1), 0))) THEN
        RAISE EXCEPTION 'no attempt may void a part of operator % in epoch % now', OLD.operator_id, OLD.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
