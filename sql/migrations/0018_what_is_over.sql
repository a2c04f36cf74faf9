-- A run fails as its last attempt does, and goes on with the next one. What is over, or has aligned, stays as it was, times
-- included; what has just begun is not measured, has no files and no reason to have ended.

CREATE OR REPLACE FUNCTION runs_row_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.run_id, NEW.run_key, NEW.reference, NEW.max_buckets, NEW.created_at)
           IS DISTINCT FROM (OLD.run_id, OLD.run_key, OLD.reference, OLD.max_buckets, OLD.created_at) THEN
            RAISE EXCEPTION 'the identity of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        END IF;
        IF (NEW.attempt_id IS DISTINCT FROM OLD.attempt_id) <> (NEW.fencing_token <> OLD.fencing_token)
           OR NEW.fencing_token > OLD.fencing_token + 1 THEN
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
        IF OLD.status = 'STOPPED' AND NEW.status = 'RUNNING' THEN
            IF EXISTS (SELECT FROM stops WHERE stops.run_id = OLD.run_id AND stops.resumed_at IS NULL) THEN
                RAISE EXCEPTION 'nobody has resumed run %', OLD.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.aborted_through > OLD.aborted_through THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                       AND checkpoints.status = 'PENDING' AND checkpoints.checkpoint_id <= NEW.aborted_through) THEN
                RAISE EXCEPTION 'a checkpoint of run % is not aborted, as all through % are', OLD.run_id,
                    NEW.aborted_through USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND NEW.status IN ('FINISHED', 'FAILED', 'STOPPED', 'DELETED')
           AND EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL) THEN
            RAISE EXCEPTION 'run % is driven and cannot be %', OLD.run_id, lower(NEW.status)
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'FAILED' AND (OLD.status <> 'FAILED' OR NEW.failure IS DISTINCT FROM OLD.failure) THEN
            IF OLD.status = 'FAILED' OR NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id
                   AND attempts.fencing_token = OLD.fencing_token AND attempts.outcome = 'FAILED'
                   AND attempts.reason = NEW.failure) THEN
                RAISE EXCEPTION 'run % fails as its last attempt does, and for its reason', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        ELSIF NEW.status = 'DELETED' AND NEW.failure IS DISTINCT FROM OLD.failure THEN
            RAISE EXCEPTION 'why run % failed cannot change', OLD.run_id USING ERRCODE = 'check_violation';
        ELSIF OLD.status = 'FAILED' AND NEW.status IN ('RUNNING', 'TERMINATING') THEN
            IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL) THEN
                RAISE EXCEPTION 'run % has failed, and nobody drives it on', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF OLD.status <> NEW.status AND NEW.status = 'TERMINATING'
           OR OLD.terminated_by IS NULL AND NEW.terminated_by IS NOT NULL THEN
            IF NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                           AND epochs.epoch = NEW.last_durable_epoch AND epochs.status = 'DURABLE'
                           AND epochs.decision ->> 'terminated_by' = NEW.terminated_by) THEN
                RAISE EXCEPTION 'the last durable epoch of run % did not decide that it terminates', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
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
            OR jsonb_typeof(NEW.outputs) <> 'object' OR (NEW.status = 'FINISHED') <> (NEW.state_digest IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.finished_at IS NOT NULL)) THEN 'runs_finished_check'
        WHEN NEW.status <> 'DELETED' AND (NEW.status = 'FAILED') <> (NEW.failure IS NOT NULL) THEN 'runs_failure_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'run % breaks %', NEW.run_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
                   AND (runs.fencing_token, runs.attempt_id) IS DISTINCT FROM (NEW.fencing_token, NEW.attempt_id)) THEN
            RAISE EXCEPTION 'token % of run % is not in force, or another attempt''s', NEW.fencing_token, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF jsonb_path_exists(NEW.policy, 'strict $ ? (@.max_pending >= 1 && @.max_pending <= 2147483647
               && @.tolerable_failures >= 0 && @.tolerable_failures <= 2147483647)', '{}', true) IS NOT TRUE
           OR concat(NEW.policy ->> 'max_pending', NEW.policy ->> 'tolerable_failures') ~ '[^0-9]' THEN
            RAISE EXCEPTION 'the policy of attempt % does not say what is pending and tolerated', NEW.fencing_token
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.checkpoint_failures <> 0 THEN
            RAISE EXCEPTION 'no checkpoint of attempt % has failed before it begins', NEW.fencing_token
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.ended_at IS NOT NULL OR NEW.reason IS NOT NULL THEN
            RAISE EXCEPTION 'attempt % does not begin as one that has ended', NEW.fencing_token
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
    IF NEW.ended_at IS NULL AND NEW.reason IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % has not ended, and says why', NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.definition_changes IS NOT NULL AND NEW.definition_changes IS DISTINCT FROM OLD.definition_changes THEN
        RAISE EXCEPTION 'attempt % has said how its operators are others', OLD.fencing_token
            USING ERRCODE = 'check_violation';
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
        IF TG_OP = 'UPDATE' AND (OLD.status <> 'OPEN' OR NEW.status = 'VOIDED' OR OLD.held_at IS NOT NULL
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
        IF NEW.status <> 'OPEN' OR NEW.reports > 0 OR NEW.metrics <> '{}'
           OR num_nonnulls(NEW.held_at, NEW.seconds, NEW.unaligned_by) > 0 THEN
            RAISE EXCEPTION 'epoch % of run % does not begin as one that is %, or with reports', NEW.epoch, NEW.run_id,
                CASE NEW.status WHEN 'OPEN' THEN 'held, unaligned or measured' ELSE NEW.status END USING ERRCODE = 'check_violation';
        END IF;
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
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token, NEW.opened_at)
           IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token, OLD.opened_at) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        may_move := OLD.status = NEW.status OR CASE OLD.status
            WHEN 'OPEN' THEN NEW.status IN ('ALIGNED', 'VOIDED')
            WHEN 'ALIGNED' THEN NEW.status IN ('DURABLE', 'VOIDED')
            ELSE false
        END;
        IF OLD.status = 'DURABLE' AND NEW.status = 'VOIDED' THEN
            may_move := EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                WHERE fallbacks.run_id = OLD.run_id AND fallbacks.epoch < OLD.epoch
                AND fallbacks.fencing_token > OLD.fencing_token
                AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                    AND epochs.fencing_token = fallbacks.fencing_token));
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
            rule := CASE
                WHEN NOT jsonb_path_exists(NEW.records, '$.*[*] ? (@ > 0)') THEN 'empty_feedback'
                WHEN NEW.records ? 'criteria' AND NOT jsonb_path_exists(NEW.records, '$.criteria[*] ? (@ > 0)')
                    THEN 'criteria'
                WHEN run.max_epochs <= NEW.epoch + 1 THEN 'max_epochs'
                WHEN run.asked_to = 'DRAIN' THEN 'drained'
            END;
            IF NEW.decision IS DISTINCT FROM jsonb_build_object('terminated_by', rule, 'records', (
                   SELECT jsonb_object_agg(head.key, (SELECT coalesce(sum(CAST(told.count AS numeric)), 0)
                       FROM jsonb_array_elements_text(head.value) AS told (count)))
                   FROM jsonb_each(NEW.records) AS head)) THEN
                RAISE EXCEPTION 'epoch % decided by what was not reported, or by another rule than %', OLD.epoch,
                    coalesce(rule, 'none') USING ERRCODE = 'check_violation';
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
        IF (OLD.held_at IS NOT NULL OR NEW.held_at IS NULL) AND (NEW.held_at, NEW.metrics, NEW.seconds)
           IS DISTINCT FROM (OLD.held_at, OLD.metrics, OLD.seconds) THEN
            RAISE EXCEPTION 'what epoch % measured cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.durable_at <> OLD.durable_at OR NEW.aligned_at IS DISTINCT FROM OLD.aligned_at
                AND (OLD.status <> 'OPEN' OR NEW.status = 'VOIDED') THEN
            RAISE EXCEPTION 'when epoch % aligned, or became durable, cannot change', OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.epoch < 0 THEN 'epochs_epoch_check'
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
        IF (NEW.run_id, NEW.checkpoint_id, NEW.epoch, NEW.fencing_token, NEW.kind, NEW.triggered_at)
           IS DISTINCT FROM (OLD.run_id, OLD.checkpoint_id, OLD.epoch, OLD.fencing_token, OLD.kind, OLD.triggered_at) THEN
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
    ELSIF NEW.status NOT IN ('PENDING', 'ABORTED') OR NEW.acknowledged > 0 THEN  -- the others are steps of their own
        RAISE EXCEPTION 'checkpoint % of run % does not begin as one that is %, or with acknowledgements',
            NEW.checkpoint_id, NEW.run_id, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    broken := CASE
        WHEN NEW.checkpoint_id < 1 THEN 'checkpoints_checkpoint_id_check'
        WHEN NEW.kind NOT IN ('PERIODIC', 'MANUAL', 'FINAL') THEN 'checkpoints_kind_check'
        WHEN NEW.expected < 1 THEN 'checkpoints_acknowledged_check'
        WHEN NEW.status NOT IN ('PENDING', 'ABORTED') AND (NEW.acknowledged <> NEW.expected
            OR NEW.manifest_path IS NULL OR NEW.size_bytes IS NULL) THEN 'checkpoints_completed_check'
        WHEN NEW.status IN ('PENDING', 'ABORTED')
            AND num_nonnulls(NEW.manifest_path, NEW.manifest_sha256, NEW.size_bytes) > 0
            THEN 'checkpoints_unwritten_check'
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
