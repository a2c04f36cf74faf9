-- The eighth version: the database knows by itself who drives a run, and refuses what anybody else writes (I2); and what
-- else of the invariants it did not refuse.

-- What a run's driver writes is written under the token of a live attempt (I2); on every table, by its name, the last
-- guard that is asked.
CREATE FUNCTION writer_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                   AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) THEN
        RAISE EXCEPTION 'nobody drives run % under token %, who would write %', NEW.run_id, NEW.fencing_token,
            TG_ARGV[0] USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER operators_writer_guard BEFORE UPDATE ON operators FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION writer_guard('an operator''s marker');
CREATE TRIGGER pins_writer_guard BEFORE INSERT ON pins FOR EACH ROW EXECUTE FUNCTION writer_guard('a pin');
CREATE TRIGGER epochs_writer_guard BEFORE INSERT OR UPDATE ON epochs FOR EACH ROW
    WHEN (NEW.status IN ('OPEN', 'ALIGNED')) EXECUTE FUNCTION writer_guard('an epoch');
CREATE TRIGGER edge_parts_writer_guard BEFORE INSERT ON edge_parts
    FOR EACH ROW EXECUTE FUNCTION writer_guard('an edge');
CREATE TRIGGER listener_notices_writer_guard BEFORE INSERT ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION writer_guard('a notice');
CREATE TRIGGER committables_writer_guard BEFORE INSERT ON committables
    FOR EACH ROW EXECUTE FUNCTION writer_guard('a committable');

-- A checkpoint is triggered once its epoch has aligned, under the id that was issued last (I7).
CREATE FUNCTION checkpoints_issue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM runs JOIN epochs USING (run_id) WHERE runs.run_id = NEW.run_id
                   AND runs.last_checkpoint_id = NEW.checkpoint_id AND epochs.epoch = NEW.epoch
                   AND epochs.fencing_token = NEW.fencing_token AND epochs.status = 'ALIGNED') THEN
        RAISE EXCEPTION 'checkpoint % of epoch % was not issued, or its epoch has not aligned', NEW.checkpoint_id,
            NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoints_issue_guard BEFORE INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_issue_guard();
CREATE TRIGGER checkpoints_writer_guard BEFORE INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION writer_guard('a checkpoint');

-- What else a run's row may hold, and its steps; on the columns alone that the updates of every epoch leave alone.
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
        IF OLD.status <> NEW.status AND NEW.status = 'TERMINATING' AND NOT EXISTS (SELECT FROM epochs
               WHERE epochs.run_id = OLD.run_id AND epochs.epoch = NEW.last_durable_epoch
               AND epochs.status = 'DURABLE' AND epochs.decision ->> 'terminated_by' = NEW.terminated_by) THEN
            RAISE EXCEPTION 'the last durable epoch of run % did not decide that it terminates', OLD.run_id
                USING ERRCODE = 'check_violation';
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

-- An epoch follows one that is aligned or durable and does not end the run (I3, I9); no attempt opens one after another
-- while a person asks the run to stop (I20). What it was decided from stays, and is what was reported, which is
-- looked at once, where it ends the run (I5); only a completed checkpoint makes it durable (I6).
CREATE OR REPLACE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.records <> OLD.records THEN
        IF jsonb_path_exists(NEW.records, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.records, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && (@ < 0 || @.floor() != @))', '{}', true) THEN
            RAISE EXCEPTION 'the reports of epoch % are no counts of subtasks', NEW.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected_reports := jsonb_array_length(jsonb_path_query_array(NEW.records, '$.*[*]'));
        NEW.reports := jsonb_array_length(jsonb_path_query_array(NEW.records, '$.*[*] ? (@ != null)'));
        IF TG_OP = 'UPDATE' AND (OLD.status <> 'OPEN' OR OLD.held_at IS NOT NULL
               OR jsonb_path_query_array(NEW.records, '$.keyvalue().key')
                  <> jsonb_path_query_array(OLD.records, '$.keyvalue().key')
               OR jsonb_path_query_array(NEW.records, '$.*.size()')
                  <> jsonb_path_query_array(OLD.records, '$.*.size()')) THEN
            RAISE EXCEPTION 'the reports of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (NEW.reports, NEW.expected_reports) IS DISTINCT FROM (OLD.reports, OLD.expected_reports) THEN
        RAISE EXCEPTION 'the reports of epoch % are counted, not told', OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF (NEW.epoch > 0 OR EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id))
           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
               AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
               AND epochs.decision ->> 'terminated_by' IS NULL)
           AND NOT EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id
               AND branches.epoch = NEW.epoch - 1) THEN
            RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT FROM stops WHERE stops.run_id = NEW.run_id
                   AND stops.kind = 'STOP' AND stops.resumed_at IS NULL)
           AND EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch - 1
               AND epochs.fencing_token = NEW.fencing_token) THEN
            RAISE EXCEPTION 'a person asks run % to stop before epoch %', NEW.run_id, NEW.epoch
                USING ERRCODE = 'check_violation';
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('OPEN', 'ALIGNED'), ('ALIGNED', 'DURABLE'), ('OPEN', 'VOIDED'), ('ALIGNED', 'VOIDED'))
           AND NOT ((OLD.status, NEW.status) = ('DURABLE', 'VOIDED') AND EXISTS (SELECT FROM fallbacks
               JOIN runs USING (run_id, fencing_token)
               WHERE fallbacks.run_id = OLD.run_id AND fallbacks.epoch < OLD.epoch)) THEN
            RAISE EXCEPTION 'epoch % cannot go from % to %', OLD.epoch, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF (OLD.status, NEW.status) = ('ALIGNED', 'DURABLE') AND NOT EXISTS (SELECT FROM checkpoints
               WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'COMPLETED'
               AND checkpoints.epoch >= OLD.epoch) THEN
            RAISE EXCEPTION 'no completed checkpoint covers epoch %', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF (OLD.status, NEW.status) = ('OPEN', 'ALIGNED') AND NEW.decision ->> 'terminated_by' IS NOT NULL
           AND NEW.decision -> 'records' <> (
               SELECT jsonb_object_agg(head.key, (SELECT coalesce(sum(CAST(told.count AS numeric)), 0)
                   FROM jsonb_array_elements_text(head.value) AS told (count)))
               FROM jsonb_each(NEW.records) AS head) THEN
            RAISE EXCEPTION 'epoch % ended the run by what was not reported', OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.decision IS NOT NULL AND NEW.decision IS DISTINCT FROM OLD.decision THEN
            RAISE EXCEPTION 'the decision of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF (NEW.unaligned_by, NEW.unaligned_at) IS DISTINCT FROM (OLD.unaligned_by, OLD.unaligned_at)
           AND (OLD.unaligned_by IS NOT NULL OR NEW.status <> 'OPEN') THEN
            RAISE EXCEPTION 'epoch % switches to unaligned once, while it is open', OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.held_at IS NOT NULL AND (NEW.held_at, NEW.metrics, NEW.seconds)
           IS DISTINCT FROM (OLD.held_at, OLD.metrics, OLD.seconds) THEN
            RAISE EXCEPTION 'what epoch % measured cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.epoch < 0 THEN 'epochs_epoch_check'
        WHEN NEW.status NOT IN ('OPEN', 'ALIGNED', 'DURABLE', 'VOIDED') THEN 'epochs_status_check'
        WHEN NEW.expected_reports < 1 THEN 'epochs_reports_check'
        WHEN NEW.status = 'OPEN' AND (NEW.aligned_at IS NOT NULL OR NEW.decision IS NOT NULL) THEN 'epochs_open_check'
        WHEN NEW.status IN ('ALIGNED', 'DURABLE') AND (NEW.reports <> NEW.expected_reports
            OR NEW.decision IS NULL OR NEW.aligned_at IS NULL) THEN 'epochs_aligned_check'
        WHEN (NEW.held_at IS NOT NULL) <> (NEW.reports = NEW.expected_reports) THEN 'epochs_held_check'
        WHEN NEW.unaligned_by NOT IN ('timeout', 'preemption') THEN 'epochs_unaligned_by_check'
        WHEN (NEW.unaligned_by IS NULL) <> (NEW.unaligned_at IS NULL) THEN 'epochs_unaligned_check'
        WHEN (NEW.status = 'DURABLE') <> (NEW.durable_at IS NOT NULL) THEN 'epochs_durable_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'epoch % breaks %', NEW.epoch, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'epochs';
    END IF;
    RETURN NEW;
END $$;

-- A listener hears of durable epochs, of each in turn, or of the last alone, when the run terminates (I16).
CREATE OR REPLACE FUNCTION listener_notices_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run runs;
    heard bigint;
BEGIN
    SELECT * INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    IF NEW.epoch > run.last_durable_epoch THEN
        RAISE EXCEPTION 'epoch % is not durable', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF run.status = 'TERMINATING' AND NEW.epoch = run.last_durable_epoch THEN
        RETURN NEW;
    END IF;
    SELECT max(listener_notices.epoch) INTO heard FROM listener_notices
    WHERE listener_notices.run_id = NEW.run_id AND listener_notices.listener_id = NEW.listener_id;
    IF heard IS NULL THEN
        SELECT coalesce(max(branches.epoch), -1) INTO heard FROM branches WHERE branches.run_id = NEW.run_id;
    END IF;
    IF NEW.epoch <> heard + 1 THEN
        RAISE EXCEPTION 'listener % has heard of no epoch before %', NEW.listener_id, NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
