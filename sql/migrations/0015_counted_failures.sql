-- Failed checkpoints are counted by the database (I13). No epoch begins void or held, no checkpoint
-- subsumed or discarded; no epoch is void while its attempt is live (I2); an operator finishes for good behind what it takes (I11).

-- Every transaction of a driver locks a row of runs first: none is in the middle of its writes now.
LOCK TABLE runs IN EXCLUSIVE MODE;
LOCK TABLE attempts, epochs, checkpoints IN ACCESS EXCLUSIVE MODE;

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
        IF NEW.checkpoint_failures <> 0 THEN
            RAISE EXCEPTION 'no checkpoint of attempt % has failed before it begins', NEW.fencing_token
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

DROP TRIGGER attempts_count_guard ON attempts;
-- One more than the greatest number that may be tolerated.
ALTER TABLE attempts ALTER COLUMN checkpoint_failures TYPE bigint;
CREATE OR REPLACE FUNCTION attempts_count_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the failed checkpoints of attempt % are counted, not told', NEW.fencing_token
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER attempts_count_guard BEFORE UPDATE OF checkpoint_failures ON attempts FOR EACH ROW
    WHEN (NEW.checkpoint_failures <> OLD.checkpoint_failures AND pg_trigger_depth() = 0)
    EXECUTE FUNCTION attempts_count_guard();

CREATE OR REPLACE FUNCTION start_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of run % does not begin as one that is %', TG_ARGV[0], NEW.run_id,
        CASE NEW.status WHEN 'OPEN' THEN 'held' ELSE NEW.status END USING ERRCODE = 'check_violation';
END $$;

CREATE OR REPLACE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.finished_at IS NOT NULL
           OR NEW.added_under <> (SELECT runs.fencing_token FROM runs WHERE runs.run_id = NEW.run_id)
           OR NEW.added_under > 0 AND NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                  AND attempts.fencing_token = NEW.added_under AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'operator % of run % is not added as it is now', NEW.operator_id, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.run_id, NEW.operator_id, NEW.added_under) IS DISTINCT FROM (OLD.run_id, OLD.operator_id, OLD.added_under) THEN
        RAISE EXCEPTION 'the identity of operator % cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.finished_at IS NOT NULL AND (NEW.finished_epoch, NEW.fencing_token, NEW.output, NEW.finished_at)
       IS DISTINCT FROM (OLD.finished_epoch, OLD.fencing_token, OLD.output, OLD.finished_at) THEN
        RAISE EXCEPTION 'operator % has finished and cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL THEN
        SELECT runs.last_durable_epoch + 1 AS epoch,
            CAST(runs.definition #> ARRAY['operators', NEW.operator_id] ->> 'finishes' AS boolean) AS may_finish,
            (SELECT min(source.operator_id)
             FROM jsonb_array_elements_text(runs.definition #> ARRAY['operators', NEW.operator_id, 'inputs']) AS taken (name)
             JOIN jsonb_each(runs.definition -> 'operators') AS declared (operator_id, says) ON taken.name = CASE
                 WHEN runs.definition ? 'format' THEN declared.operator_id ELSE declared.says ->> 'name' END
             JOIN operators AS source ON source.run_id = NEW.run_id AND source.operator_id = declared.operator_id
             WHERE source.role <> 'data' AND source.finished_at IS NULL) AS lacking
        INTO run FROM runs WHERE runs.run_id = NEW.run_id;
        IF run.may_finish IS NOT TRUE OR run.epoch <> NEW.finished_epoch OR run.lacking IS NOT NULL THEN
            RAISE EXCEPTION 'operator % does not finish for good in epoch % (may it at all: %; the epoch: %; lacking: %)',
                NEW.operator_id, NEW.finished_epoch, coalesce(run.may_finish, false), run.epoch,
                coalesce(run.lacking, 'nothing') USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

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
        IF TG_OP = 'UPDATE' AND OLD.reports > 0 THEN
            IF EXISTS (SELECT FROM jsonb_each(OLD.records) AS head,
                           jsonb_array_elements(head.value) WITH ORDINALITY AS told (count, number)
                       WHERE told.count <> 'null'
                       AND NEW.records -> head.key -> CAST(told.number - 1 AS integer) <> told.count) THEN
                RAISE EXCEPTION 'a report of epoch % is taken back', OLD.epoch USING ERRCODE = 'check_violation';
            END IF;
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
             AND epochs.epoch = NEW.epoch - 1 AND (epochs.status = 'DURABLE'
                 OR epochs.status = 'ALIGNED' AND epochs.fencing_token = NEW.fencing_token)
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
        IF NEW.status = 'VOIDED' AND OLD.status IN ('OPEN', 'ALIGNED') THEN
            IF EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
                       AND attempts.fencing_token = OLD.fencing_token AND attempts.ended_at IS NULL) THEN
                RAISE EXCEPTION 'epoch % of run % is not void while its attempt is live', OLD.epoch, OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
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
DROP TRIGGER epochs_start_guard ON epochs;
CREATE TRIGGER epochs_start_guard BEFORE INSERT ON epochs FOR EACH ROW
    WHEN (NEW.status <> 'OPEN' OR NEW.held_at IS NOT NULL) EXECUTE FUNCTION start_guard('an epoch');

DROP TRIGGER checkpoints_start_guard ON checkpoints;
CREATE TRIGGER checkpoints_start_guard BEFORE INSERT ON checkpoints FOR EACH ROW
    WHEN (NEW.status NOT IN ('PENDING', 'ABORTED')) EXECUTE FUNCTION start_guard('a checkpoint');

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
        IF TG_OP = 'UPDATE' AND OLD.acknowledged > 0 THEN
            IF EXISTS (SELECT FROM jsonb_each(OLD.acknowledgements) AS participant,
                           jsonb_array_elements(participant.value) WITH ORDINALITY AS told (word, number)
                       WHERE told.word <> 'null'
                       AND NEW.acknowledgements -> participant.key -> CAST(told.number - 1 AS integer) <> told.word) THEN
                RAISE EXCEPTION 'an acknowledgement of checkpoint % is taken back', OLD.checkpoint_id
                    USING ERRCODE = 'check_violation';
            END IF;
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
    SELECT runs.last_checkpoint_id, runs.aborted_through, epochs.decision ->> 'terminated_by' IS NOT NULL AS is_last,
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
    IF (NEW.kind = 'FINAL') <> epoch.is_last THEN
        RAISE EXCEPTION 'checkpoint % of epoch % is of kind %', NEW.checkpoint_id, NEW.epoch, NEW.kind
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.failure IS DISTINCT FROM 'ABORTED_BY_USER'
       AND (NEW.failure IS NOT NULL OR NEW.checkpoint_id <= epoch.aborted_through) THEN
        RAISE EXCEPTION 'checkpoint % of run % was aborted before it began, or begins as one that has failed',
            NEW.checkpoint_id, NEW.run_id USING ERRCODE = 'check_violation';
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

-- What is aborted was so by what has happened at the end of the transaction: else a failure would hide behind it (I13).
CREATE FUNCTION checkpoints_aborted_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (CASE NEW.failure
        WHEN 'ATTEMPT_ENDED' THEN EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
            AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NOT NULL)
        WHEN 'ABORTED_BY_USER' THEN EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
            AND runs.aborted_through >= NEW.checkpoint_id)
        WHEN 'SUBSUMED' THEN NEW.kind <> 'MANUAL' AND EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
            AND checkpoints.status = 'COMPLETED' AND checkpoints.checkpoint_id > NEW.checkpoint_id)
    END) THEN
        RAISE EXCEPTION 'checkpoint % of run % is not aborted by %', NEW.checkpoint_id, NEW.run_id, NEW.failure
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER checkpoints_aborted_guard AFTER UPDATE OF status ON checkpoints
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status <> 'ABORTED' AND NEW.status = 'ABORTED' AND NEW.failure NOT IN ('DECLINED', 'EXPIRED'))
    EXECUTE FUNCTION checkpoints_aborted_guard();
CREATE CONSTRAINT TRIGGER checkpoints_unbegun_guard AFTER INSERT ON checkpoints DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.status = 'ABORTED') EXECUTE FUNCTION checkpoints_aborted_guard();

-- A checkpoint completes, or fails, while its attempt is live (I2), which counts those that fail in a row, and begins anew when
-- one completes, unless they were too many; of one that is final or made by hand none is tolerable (I13).
CREATE FUNCTION checkpoints_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    attempt record;
BEGIN
    SELECT attempts.checkpoint_failures AS failures, CAST(attempts.policy ->> 'tolerable_failures' AS bigint) AS tolerable
    INTO attempt FROM attempts
    WHERE attempts.run_id = NEW.run_id AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'nobody drives run % under token %, whose checkpoint % would end as %', NEW.run_id,
            NEW.fencing_token, NEW.checkpoint_id, coalesce(NEW.failure, NEW.status) USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status = 'ABORTED' THEN
        UPDATE attempts SET checkpoint_failures = 1 + CASE NEW.kind WHEN 'PERIODIC' THEN checkpoint_failures
            ELSE greatest(checkpoint_failures, attempt.tolerable) END
        WHERE attempts.run_id = NEW.run_id AND attempts.fencing_token = NEW.fencing_token;
    ELSIF NEW.status = 'COMPLETED' AND attempt.failures BETWEEN 1 AND attempt.tolerable THEN
        UPDATE attempts SET checkpoint_failures = 0
        WHERE attempts.run_id = NEW.run_id AND attempts.fencing_token = NEW.fencing_token
            AND checkpoint_failures <= attempt.tolerable;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER checkpoints_count AFTER UPDATE OF status ON checkpoints FOR EACH ROW
    WHEN (OLD.status = 'PENDING' AND (NEW.status IN ('COMPLETED', 'SUBSUMED') OR NEW.failure IN ('DECLINED', 'EXPIRED')))
    EXECUTE FUNCTION checkpoints_count();
