-- What the records of an epoch ask takes as long in a store whose tables were never analysed, however many epochs a run has:
-- a plan that is made when they are empty, and kept, reads no more of an index than what is asked for.

-- Of all that know a pending checkpoint by its id, or an epoch that is aligned, these are the shortest.
DROP INDEX checkpoints_pending_idx;
CREATE INDEX checkpoints_pending_idx ON checkpoints (run_id, checkpoint_id) WHERE status = 'PENDING';
DROP INDEX epochs_aligned_idx;
CREATE INDEX epochs_aligned_idx ON epochs (run_id, epoch) WHERE status = 'ALIGNED';

CREATE OR REPLACE FUNCTION attempts_begun_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
BEGIN
    SELECT runs.status, coalesce(
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
