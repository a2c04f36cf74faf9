-- What the guards left to the coordinator: when too many checkpoints have failed (I13) or are pending (I14), before what a
-- part of an edge comes and who voids it (I15), and which listener hears of the end alone (I16). A part is marked behind a
-- durable epoch alone: what was marked before that, and a takeover would void, is void.

-- Every transaction of a driver locks a row of runs first: none is in the middle of its writes now.
LOCK TABLE runs IN EXCLUSIVE MODE;
LOCK TABLE attempts, listener_notices IN ACCESS EXCLUSIVE MODE;

UPDATE edge_parts SET voided_at = clock_timestamp()
FROM runs
WHERE runs.run_id = edge_parts.run_id AND edge_parts.epoch > runs.last_durable_epoch + 1 AND edge_parts.voided_at IS NULL;

CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    grows boolean;
BEGIN
    IF OLD.status IN ('FINISHED', 'STOPPED', 'DELETED') AND NEW.status = OLD.status
       AND to_jsonb(NEW) - 'revision' <> to_jsonb(OLD) - 'revision' THEN
        RAISE EXCEPTION 'run % is over or stopped and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    grows := NEW.fencing_token >= OLD.fencing_token AND NEW.last_checkpoint_id >= OLD.last_checkpoint_id
        AND NEW.aborted_through >= OLD.aborted_through AND NEW.revision >= OLD.revision;
    IF NEW.last_durable_epoch < OLD.last_durable_epoch THEN
        grows := grows AND EXISTS (SELECT FROM fallbacks WHERE fallbacks.run_id = OLD.run_id
            AND fallbacks.fencing_token = OLD.fencing_token AND fallbacks.epoch = NEW.last_durable_epoch)
            AND NOT EXISTS (SELECT FROM edge_parts WHERE edge_parts.run_id = OLD.run_id
                AND edge_parts.epoch > NEW.last_durable_epoch AND edge_parts.voided_at IS NULL);
    END IF;
    IF NOT grows THEN
        RAISE EXCEPTION 'run %: tokens, durable epochs and checkpoint ids only grow', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.last_durable_epoch <> OLD.last_durable_epoch THEN
        IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch = NEW.last_durable_epoch)
           OR NEW.last_durable_epoch - OLD.last_durable_epoch > (SELECT count(*) FROM epochs
               WHERE epochs.run_id = OLD.run_id AND epochs.status = 'DURABLE'
               AND epochs.epoch BETWEEN OLD.last_durable_epoch + 1 AND NEW.last_durable_epoch) THEN
            RAISE EXCEPTION 'run %: no completed checkpoint makes every epoch up to % durable', OLD.run_id,
                NEW.last_durable_epoch USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

ALTER TABLE attempts ADD COLUMN ignores_edges boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
                   AND (runs.fencing_token, runs.attempt_id) IS DISTINCT FROM (NEW.fencing_token, NEW.attempt_id)) THEN
            RAISE EXCEPTION 'token % of run % is not in force, or another attempt''s', NEW.fencing_token, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF jsonb_path_exists(NEW.policy, 'strict $ ? (@.max_pending >= 1 && @.max_pending <= 2147483647
               && @.max_pending.floor() == @.max_pending && @.tolerable_failures >= 0
               && @.tolerable_failures <= 2147483647 && @.tolerable_failures.floor() == @.tolerable_failures)', '{}', true)
           IS NOT TRUE THEN
            RAISE EXCEPTION 'the policy of attempt % does not say what is pending and tolerated', NEW.fencing_token
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.run_id, NEW.fencing_token, NEW.attempt_id, NEW.holder, NEW.policy, NEW.started_at, NEW.ignores_edges)
       IS DISTINCT FROM (OLD.run_id, OLD.fencing_token, OLD.attempt_id, OLD.holder, OLD.policy, OLD.started_at,
           OLD.ignores_edges) THEN
        RAISE EXCEPTION 'the identity of attempt % cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.ended_at IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % has ended and cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

-- How many checkpoints have failed in a row grows by one, or beyond what is tolerated by one that is final or made by hand; it
-- begins anew only where that were not too many (I13).
CREATE FUNCTION attempts_count_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    tolerable CONSTANT bigint := CAST(OLD.policy ->> 'tolerable_failures' AS bigint);
BEGIN
    IF NEW.checkpoint_failures NOT IN (OLD.checkpoint_failures, OLD.checkpoint_failures + 1, tolerable + 1)
       AND (NEW.checkpoint_failures <> 0 OR OLD.checkpoint_failures > tolerable) THEN
        RAISE EXCEPTION 'attempt % cannot count % failures after %', OLD.fencing_token, NEW.checkpoint_failures,
            OLD.checkpoint_failures USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER attempts_count_guard BEFORE UPDATE OF checkpoint_failures ON attempts
    FOR EACH ROW EXECUTE FUNCTION attempts_count_guard();

CREATE OR REPLACE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
    may_move boolean;
    rule text;
    run record;
    is_driven boolean;
    is_held boolean;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.records <> OLD.records THEN
        IF jsonb_path_exists(NEW.records, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.records, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && (@ < 0 || @.floor() != @))', '{}', true) THEN
            RAISE EXCEPTION 'the reports of epoch % are no counts of subtasks', NEW.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected_reports := CASE TG_OP WHEN 'UPDATE' THEN OLD.expected_reports  -- the subtasks stay the same
            ELSE jsonb_array_length(jsonb_path_query_array(NEW.records, '$.*[*]')) END;
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
    IF (TG_OP = 'INSERT' OR NEW.metrics <> OLD.metrics)
       AND jsonb_path_exists(NEW.metrics, 'strict $.* ? (@.type() != "number")') THEN
        RAISE EXCEPTION 'what epoch % measured is no number', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        SELECT (SELECT coalesce(attempts.checkpoint_failures > CAST(attempts.policy ->> 'tolerable_failures' AS integer),
                false) FROM attempts WHERE attempts.run_id = NEW.run_id
                AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS has_failed,
            (SELECT stops.kind FROM stops WHERE stops.run_id = NEW.run_id AND stops.resumed_at IS NULL) AS asked_to,
            (SELECT epochs.fencing_token FROM epochs WHERE epochs.run_id = NEW.run_id
             AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
             AND epochs.decision ->> 'terminated_by' IS NULL) AS previous_token
        INTO run;
        is_driven := run.has_failed IS NOT NULL;
    ELSIF NEW.status IN ('OPEN', 'ALIGNED') THEN
        SELECT runs.max_epochs, (SELECT coalesce(CAST(attempts.policy ->> 'max_pending' AS integer), 1)
                FROM attempts WHERE attempts.run_id = NEW.run_id
                AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS max_pending,
            (SELECT count(*) FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
             AND checkpoints.status = 'PENDING') AS pending,
            (SELECT stops.kind FROM stops WHERE stops.run_id = NEW.run_id AND stops.resumed_at IS NULL) AS asked_to
        INTO run FROM runs WHERE runs.run_id = NEW.run_id;
        is_driven := run.max_pending IS NOT NULL;
        is_held := run.pending >= run.max_pending;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF run.has_failed THEN
            RAISE EXCEPTION 'epoch % cannot open: too many checkpoints of attempt % have failed', NEW.epoch,
                NEW.fencing_token USING ERRCODE = 'check_violation';
        END IF;
        IF run.previous_token IS NULL AND NEW.epoch >= 0 THEN
            IF NEW.epoch <> (SELECT coalesce(max(branches.epoch), -1) + 1 FROM branches
                             WHERE branches.run_id = NEW.run_id) THEN
                RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
            END IF;
        ELSIF run.previous_token = NEW.fencing_token AND run.asked_to = 'STOP' THEN
            RAISE EXCEPTION 'a person asks run % to stop before epoch %', NEW.run_id, NEW.epoch
                USING ERRCODE = 'check_violation';
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        may_move := OLD.status = NEW.status OR CASE OLD.status
            WHEN 'OPEN' THEN NEW.status IN ('ALIGNED', 'VOIDED')
            WHEN 'ALIGNED' THEN NEW.status IN ('DURABLE', 'VOIDED')
            ELSE false
        END;
        IF OLD.status = 'DURABLE' AND NEW.status = 'VOIDED' THEN
            may_move := EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                WHERE fallbacks.run_id = OLD.run_id AND fallbacks.epoch < OLD.epoch);
        END IF;
        IF NOT may_move THEN
            RAISE EXCEPTION 'epoch % cannot go from % to %', OLD.epoch, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status = 'ALIGNED' AND NEW.status = 'DURABLE' THEN
            IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                           AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch >= OLD.epoch) THEN
                RAISE EXCEPTION 'no completed checkpoint covers epoch %', OLD.epoch USING ERRCODE = 'check_violation';
            END IF;
        ELSIF OLD.status = 'OPEN' AND NEW.status = 'ALIGNED' AND jsonb_typeof(NEW.decision) = 'object' THEN
            IF is_held THEN
                RAISE EXCEPTION 'epoch % is held by the checkpoints that are pending', OLD.epoch
                    USING ERRCODE = 'check_violation';
            END IF;
            IF NEW.decision -> 'records' IS DISTINCT FROM (
                   SELECT jsonb_object_agg(head.key, (SELECT coalesce(sum(CAST(told.count AS numeric)), 0)
                       FROM jsonb_array_elements_text(head.value) AS told (count)))
                   FROM jsonb_each(NEW.records) AS head) THEN
                RAISE EXCEPTION 'epoch % decided by what was not reported', OLD.epoch
                    USING ERRCODE = 'check_violation';
            END IF;
            rule := CASE
                WHEN NOT jsonb_path_exists(NEW.records, '$.*[*] ? (@ > 0)') THEN 'empty_feedback'
                WHEN NEW.records ? 'criteria' AND NOT jsonb_path_exists(NEW.records, '$.criteria[*] ? (@ > 0)')
                    THEN 'criteria'
                WHEN run.max_epochs <= NEW.epoch + 1 THEN 'max_epochs'
                WHEN run.asked_to = 'DRAIN' THEN 'drained'
            END;
            IF NEW.decision ->> 'terminated_by' IS DISTINCT FROM rule THEN
                RAISE EXCEPTION 'epoch % decided by another rule than %', OLD.epoch, coalesce(rule, 'none')
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.decision IS DISTINCT FROM OLD.decision
           AND (OLD.decision IS NOT NULL OR OLD.status <> 'OPEN' OR NEW.status = 'VOIDED') THEN
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
        WHEN jsonb_typeof(NEW.decision) <> 'object' THEN 'epochs_decision_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'epoch % breaks %', NEW.epoch, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'epochs';
    END IF;
    IF NEW.status IN ('OPEN', 'ALIGNED') THEN
        IF is_driven IS NOT TRUE THEN
            RAISE EXCEPTION 'nobody drives run % under token %, who would write an epoch', NEW.run_id,
                NEW.fencing_token USING ERRCODE = 'check_violation';
        END IF;
        IF TG_OP = 'UPDATE' AND NEW.status = 'OPEN' AND NEW.held_at IS NOT NULL THEN
            IF NOT is_held THEN
                RAISE EXCEPTION 'nothing holds epoch %, whose subtasks have all reported', NEW.epoch
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
    may_move boolean;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.acknowledgements <> OLD.acknowledgements THEN
        IF jsonb_path_exists(NEW.acknowledgements, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.acknowledgements, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && @ != 1)', '{}', true) THEN
            RAISE EXCEPTION 'the acknowledgements of checkpoint % are not those of subtasks', NEW.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected := CASE TG_OP WHEN 'UPDATE' THEN OLD.expected  -- the subtasks stay the same
            ELSE jsonb_array_length(jsonb_path_query_array(NEW.acknowledgements, '$.*[*]')) END;
        NEW.acknowledged := jsonb_array_length(jsonb_path_query_array(NEW.acknowledgements, '$.*[*] ? (@ != null)'));
        IF TG_OP = 'UPDATE' AND (OLD.status <> 'PENDING'
               OR jsonb_path_query_array(NEW.acknowledgements, '$.keyvalue().key')
                  <> jsonb_path_query_array(OLD.acknowledgements, '$.keyvalue().key')
               OR jsonb_path_query_array(NEW.acknowledgements, '$.*.size()')
                  <> jsonb_path_query_array(OLD.acknowledgements, '$.*.size()')) THEN
            RAISE EXCEPTION 'the acknowledgements of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (NEW.acknowledged, NEW.expected) IS DISTINCT FROM (OLD.acknowledged, OLD.expected) THEN
        RAISE EXCEPTION 'the acknowledgements of checkpoint % are counted, not told', OLD.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.run_id, NEW.checkpoint_id, NEW.epoch, NEW.fencing_token, NEW.kind)
           IS DISTINCT FROM (OLD.run_id, OLD.checkpoint_id, OLD.epoch, OLD.fencing_token, OLD.kind) THEN
            RAISE EXCEPTION 'the identity of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        may_move := OLD.status = NEW.status OR CASE OLD.status
            WHEN 'PENDING' THEN NEW.status IN ('COMPLETED', 'ABORTED', 'SUBSUMED')
            WHEN 'COMPLETED' THEN NEW.status IN ('SUBSUMED', 'DISCARDED')
            WHEN 'SUBSUMED' THEN NEW.status = 'DISCARDED'
            ELSE false
        END;
        IF OLD.status = 'SUBSUMED' AND NEW.status = 'COMPLETED' THEN
            may_move := EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                WHERE fallbacks.run_id = OLD.run_id AND fallbacks.to_checkpoint_id = OLD.checkpoint_id);
        END IF;
        IF NOT may_move THEN
            RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status = 'PENDING' AND NEW.status IN ('COMPLETED', 'SUBSUMED') THEN
            IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
                           AND attempts.fencing_token = OLD.fencing_token AND attempts.ended_at IS NULL) THEN
                RAISE EXCEPTION 'nobody drives run % under token %, who would write a completed checkpoint',
                    OLD.run_id, OLD.fencing_token USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.status = 'DISCARDED' AND OLD.status <> 'DISCARDED' THEN
            IF EXISTS (SELECT FROM branches WHERE branches.origin_run_id = OLD.run_id
                       AND branches.origin_checkpoint_id = OLD.checkpoint_id AND branches.released_at IS NULL)
               OR EXISTS (SELECT FROM checkpoint_pins WHERE checkpoint_pins.run_id = OLD.run_id
                       AND checkpoint_pins.checkpoint_id = OLD.checkpoint_id)
               OR NOT EXISTS (SELECT FROM checkpoints AS newer WHERE newer.run_id = OLD.run_id
                       AND newer.status = 'COMPLETED' AND newer.checkpoint_id > OLD.checkpoint_id)
                   AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status = 'DELETED')
                   AND NOT EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                       WHERE fallbacks.run_id = OLD.run_id
                       AND OLD.checkpoint_id > fallbacks.to_checkpoint_id
                       AND OLD.checkpoint_id <= fallbacks.from_checkpoint_id) THEN
                RAISE EXCEPTION 'checkpoint % of run % is needed', OLD.checkpoint_id, OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF OLD.manifest_sha256 IS NOT NULL AND (NEW.manifest_path, NEW.manifest_sha256, NEW.size_bytes)
           IS DISTINCT FROM (OLD.manifest_path, OLD.manifest_sha256, OLD.size_bytes) THEN
            RAISE EXCEPTION 'the manifest of checkpoint % cannot change', OLD.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.ended_at IS NOT NULL AND (NEW.ended_at, NEW.failure, NEW.reason)
           IS DISTINCT FROM (OLD.ended_at, OLD.failure, OLD.reason) THEN
            RAISE EXCEPTION 'how checkpoint % ended cannot change', OLD.checkpoint_id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.checkpoint_id < 1 THEN 'checkpoints_checkpoint_id_check'
        WHEN NEW.kind NOT IN ('PERIODIC', 'MANUAL', 'FINAL') THEN 'checkpoints_kind_check'
        WHEN NEW.status NOT IN ('PENDING', 'COMPLETED', 'ABORTED', 'SUBSUMED', 'DISCARDED')
            THEN 'checkpoints_status_check'
        WHEN NEW.expected < 1 THEN 'checkpoints_acknowledged_check'
        WHEN NEW.status NOT IN ('PENDING', 'ABORTED') AND (NEW.acknowledged <> NEW.expected
            OR NEW.manifest_path IS NULL OR NEW.size_bytes IS NULL) THEN 'checkpoints_completed_check'
        WHEN (NEW.manifest_path IS NULL) <> (NEW.manifest_sha256 IS NULL)
            OR length(NEW.manifest_sha256) <> 64 OR translate(NEW.manifest_sha256, '0123456789abcdef', '') <> ''
            THEN 'checkpoints_manifest_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.reason IS NOT NULL) THEN 'checkpoints_aborted_check'
        WHEN NEW.failure NOT IN ('DECLINED', 'EXPIRED', 'ABORTED_BY_USER', 'SUBSUMED', 'ATTEMPT_ENDED')
            THEN 'checkpoints_failure_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.failure IS NOT NULL) THEN 'checkpoints_failed_check'
        WHEN (NEW.status = 'PENDING') <> (NEW.ended_at IS NULL) THEN 'checkpoints_ended_check'
        WHEN NEW.size_bytes < 0 THEN 'checkpoints_size_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'checkpoint % breaks %', NEW.checkpoint_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'checkpoints';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION checkpoints_issue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    epoch record;
BEGIN
    SELECT runs.last_checkpoint_id, runs.aborted_through,
        (SELECT count(*) FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
         AND checkpoints.status = 'PENDING') AS pending,
        (SELECT CASE WHEN attempts.checkpoint_failures > CAST(attempts.policy ->> 'tolerable_failures' AS integer) THEN 0
                ELSE coalesce(CAST(attempts.policy ->> 'max_pending' AS integer), 1) END
         FROM attempts WHERE attempts.run_id = NEW.run_id
         AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS may_be_pending
    INTO epoch FROM epochs JOIN runs USING (run_id)
    WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
        AND epochs.status = 'ALIGNED';
    IF epoch.last_checkpoint_id IS DISTINCT FROM NEW.checkpoint_id THEN
        RAISE EXCEPTION 'checkpoint % of epoch % was not issued, or its epoch has not aligned', NEW.checkpoint_id,
            NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status <> 'ABORTED' AND NEW.checkpoint_id <= epoch.aborted_through THEN
        RAISE EXCEPTION 'checkpoint % of run % was aborted before it began', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF epoch.may_be_pending IS NULL THEN
        RAISE EXCEPTION 'nobody drives run % under token %, who would write a checkpoint', NEW.run_id,
            NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF epoch.pending >= epoch.may_be_pending THEN
        RAISE EXCEPTION 'checkpoint % cannot begin: too many of attempt % have failed, or are pending',
            NEW.checkpoint_id, NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION checkpoints_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'PENDING' AND NEW.status <> 'PENDING' THEN
        IF EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.status = 'OPEN'
                   AND epochs.held_at IS NOT NULL) THEN
            IF EXISTS (SELECT FROM epochs JOIN attempts USING (run_id, fencing_token)
                       WHERE epochs.run_id = NEW.run_id AND epochs.status = 'OPEN' AND attempts.ended_at IS NULL
                       AND CAST(attempts.policy ->> 'max_pending' AS integer) > (SELECT count(*) FROM checkpoints
                           WHERE checkpoints.run_id = NEW.run_id AND checkpoints.status = 'PENDING')) THEN
                RAISE EXCEPTION 'checkpoint % of run % has ended, and the epoch that it held has not aligned',
                    NEW.checkpoint_id, NEW.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    END IF;
    IF OLD.status = 'PENDING' AND NEW.failure IN ('DECLINED', 'EXPIRED') THEN
        IF EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id AND attempts.ended_at IS NULL
                   AND attempts.fencing_token = NEW.fencing_token AND attempts.checkpoint_failures <= CASE
                       WHEN NEW.kind <> 'PERIODIC' THEN CAST(attempts.policy ->> 'tolerable_failures' AS integer)
                       ELSE 0 END)
           AND NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                           AND checkpoints.status = 'COMPLETED' AND checkpoints.ended_at > NEW.ended_at) THEN
            RAISE EXCEPTION 'checkpoint % of run % has failed, and is not counted', NEW.checkpoint_id, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    IF NEW.status = 'COMPLETED' THEN
        IF EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.last_durable_epoch <> NEW.epoch) THEN
            IF EXISTS (SELECT FROM checkpoints JOIN runs USING (run_id) WHERE checkpoints.run_id = NEW.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch <> runs.last_durable_epoch) THEN
                RAISE EXCEPTION 'checkpoint % is completed, and epoch % is not the last durable one',
                    NEW.checkpoint_id, NEW.epoch USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    ELSIF NEW.status = 'SUBSUMED' THEN
        IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.checkpoint_id > NEW.checkpoint_id) THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                       AND checkpoints.checkpoint_id = NEW.checkpoint_id AND checkpoints.status = 'SUBSUMED') THEN
                RAISE EXCEPTION 'no newer checkpoint subsumes checkpoint % of run %', NEW.checkpoint_id, NEW.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION edge_parts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run runs;
    own jsonb;
    lacking text;
BEGIN
    IF EXISTS (SELECT FROM edge_parts AS known
               WHERE known.run_id = NEW.run_id AND known.epoch = NEW.epoch AND known.operator_id = NEW.operator_id
               AND known.voided_at IS NULL AND (known.total <> NEW.total
                   OR known.first_bucket < NEW.end_bucket AND NEW.first_bucket < known.end_bucket)) THEN
        RAISE EXCEPTION 'buckets % to % of operator % in epoch % do not fit what is finished',
            NEW.first_bucket, NEW.end_bucket, NEW.operator_id, NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    own := run.definition #> ARRAY['operators', NEW.operator_id];
    IF NEW.total IS DISTINCT FROM (CASE own ->> 'kind' WHEN 'buckets' THEN run.max_buckets WHEN 'value' THEN 1
           WHEN 'frame' THEN 1 END) THEN
        RAISE EXCEPTION 'run % has no operator % with % buckets', NEW.run_id, NEW.operator_id, NEW.total
            USING ERRCODE = 'check_violation';
    END IF;
    IF jsonb_path_exists(NEW.metrics, 'strict $.* ? (@.type() != "number")') THEN
        RAISE EXCEPTION 'what operator % measured is no number', NEW.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.epoch = -1) <> CAST(own ->> 'finishes' AS boolean)
       OR own ->> 'role' = 'variable' AND (NEW.epoch <> 0 OR own ->> 'part_of' IS NOT NULL) THEN
        RAISE EXCEPTION 'operator % is not computed in epoch %', NEW.operator_id, NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch = -1 AND EXISTS (SELECT FROM operators WHERE operators.run_id = NEW.run_id
           AND operators.operator_id = NEW.operator_id AND operators.finished_at IS NOT NULL) THEN
        RAISE EXCEPTION 'operator % has finished', NEW.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch >= 0 AND NEW.epoch <> run.last_durable_epoch + 1 THEN
        RAISE EXCEPTION 'epoch % does not come after the last durable one', NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch >= 0 AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
           AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
           AND epochs.status IN ('OPEN', 'ALIGNED') AND epochs.unaligned_by IS NOT NULL) THEN
        RAISE EXCEPTION 'epoch % has not switched to unaligned', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    SELECT source.operator_id INTO lacking
    FROM jsonb_array_elements_text(own -> 'inputs') AS taken (name)
    JOIN jsonb_each(run.definition -> 'operators') AS source (operator_id, declared)
        ON taken.name = CASE WHEN run.definition ? 'format' THEN source.operator_id ELSE source.declared ->> 'name' END
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(part.end_bucket - part.first_bucket) = max(part.total), false) AS is_whole,
            coalesce(sum(greatest(0, least(part.end_bucket, NEW.end_bucket)
                - greatest(part.first_bucket, NEW.first_bucket))), 0) AS buckets
        FROM edge_parts AS part WHERE part.run_id = NEW.run_id AND part.epoch = NEW.epoch
            AND part.operator_id = source.operator_id AND part.voided_at IS NULL
    ) AS edge
    WHERE NOT CASE
        WHEN source.declared ->> 'role' = 'data' THEN true
        WHEN CAST(source.declared ->> 'finishes' AS boolean) THEN EXISTS (
            SELECT FROM operators WHERE operators.run_id = NEW.run_id
            AND operators.operator_id = source.operator_id AND operators.finished_at IS NOT NULL)
        WHEN source.declared ->> 'role' = 'variable' AND (NEW.epoch <> 0 OR source.declared ->> 'part_of' IS NOT NULL)
            THEN true
        WHEN source.declared ->> 'kind' = 'buckets' AND own ->> 'kind' = 'buckets'
            THEN edge.buckets = NEW.end_bucket - NEW.first_bucket
        ELSE edge.is_whole
    END
    LIMIT 1;
    IF lacking IS NOT NULL THEN
        RAISE EXCEPTION 'buckets % to % of operator % in epoch % come before % is finished', NEW.first_bucket,
            NEW.end_bucket, NEW.operator_id, NEW.epoch, lacking USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION edge_parts_void_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.voided_at IS NOT NULL OR NEW.voided_at IS NULL
       OR to_jsonb(NEW) - 'voided_at' IS DISTINCT FROM to_jsonb(OLD) - 'voided_at' THEN
        RAISE EXCEPTION 'a part of operator % in epoch % is voided once, and else cannot change',
            OLD.operator_id, OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM attempts JOIN runs USING (run_id) LEFT JOIN fallbacks
                       ON fallbacks.run_id = attempts.run_id AND fallbacks.fencing_token = attempts.fencing_token
                   WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL AND (
                       OLD.epoch > fallbacks.epoch
                           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                               AND epochs.fencing_token = attempts.fencing_token AND epochs.status = 'OPEN')
                           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                               AND epochs.fencing_token = attempts.fencing_token AND epochs.status = 'ALIGNED')
                       OR (attempts.definition_changes IS NOT NULL OR attempts.ignores_edges AND (OLD.epoch >= 0
                               OR NOT EXISTS (SELECT FROM operators WHERE operators.run_id = OLD.run_id
                                   AND operators.operator_id = OLD.operator_id AND operators.finished_at IS NOT NULL)))
                           AND OLD.epoch NOT BETWEEN 0 AND runs.last_durable_epoch
                           AND attempts.fencing_token > coalesce((SELECT epochs.fencing_token FROM epochs
                               WHERE epochs.run_id = OLD.run_id AND epochs.status <> 'VOIDED'
                               ORDER BY epochs.epoch DESC LIMIT 1), 0))) THEN
        RAISE EXCEPTION 'no attempt may void a part of operator % in epoch % now', OLD.operator_id, OLD.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

-- An attempt that ignores edges leaves none, when it has begun, nor a part of what has not finished for good (I15).
CREATE FUNCTION attempts_ignore_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM edge_parts JOIN runs USING (run_id) LEFT JOIN operators USING (run_id, operator_id)
               WHERE edge_parts.run_id = NEW.run_id AND edge_parts.voided_at IS NULL
               AND edge_parts.fencing_token < NEW.fencing_token AND (edge_parts.epoch > runs.last_durable_epoch
                   OR edge_parts.epoch = -1 AND operators.finished_at IS NULL)) THEN
        RAISE EXCEPTION 'attempt % of run % ignores edges, and leaves some', NEW.fencing_token, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER attempts_ignore_guard AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.ignores_edges) EXECUTE FUNCTION attempts_ignore_guard();

ALTER TABLE listener_notices ADD COLUMN is_final boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION listener_notices_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run runs;
    heard bigint;
BEGIN
    SELECT * INTO run FROM runs WHERE runs.run_id = NEW.run_id;
    IF NEW.epoch > run.last_durable_epoch THEN
        RAISE EXCEPTION 'epoch % is not durable', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF EXISTS (SELECT FROM listener_notices AS told WHERE told.run_id = NEW.run_id
               AND told.listener_id = NEW.listener_id AND told.is_final <> NEW.is_final) THEN
        RAISE EXCEPTION 'listener % hears of epochs, or of the end, not of both', NEW.listener_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.is_final THEN
        IF run.status <> 'TERMINATING' OR NEW.epoch <> run.last_durable_epoch THEN
            RAISE EXCEPTION 'run % did not end with epoch %', NEW.run_id, NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
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

-- Who heard of the last epoch alone heard of the end; of a run of one epoch nobody can tell, and it is left as it is.
ALTER TABLE listener_notices DISABLE TRIGGER listener_notices_change_guard;
UPDATE listener_notices SET is_final = true
FROM runs LEFT JOIN branches USING (run_id)
WHERE runs.run_id = listener_notices.run_id AND runs.terminated_by IS NOT NULL
    AND listener_notices.epoch = runs.last_durable_epoch AND listener_notices.epoch > coalesce(branches.epoch, -1) + 1
    AND NOT EXISTS (
        SELECT FROM listener_notices AS before
        WHERE before.run_id = listener_notices.run_id AND before.listener_id = listener_notices.listener_id
            AND before.epoch = listener_notices.epoch - 1
    );
ALTER TABLE listener_notices ENABLE TRIGGER listener_notices_change_guard;
