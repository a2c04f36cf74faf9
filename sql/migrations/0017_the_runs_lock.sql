-- Who writes anything of a run holds the lock of its row. An id that is issued begins a checkpoint (I7, I17), which is that of
-- the last epoch, begins without acknowledgements, and answers all who asked before it (I13); one that completes ends the
-- older ones (I8) and lets the origin of a branch go (I18). What an attempt left goes with all behind it (I3). The operators
-- are those of the definition, which an attempt changes once (I11). A decision is what was reported and the rule, nothing else.

-- Every transaction of a driver locks a row of runs first: none is in the middle of its writes now.
LOCK TABLE runs IN ACCESS EXCLUSIVE MODE;
LOCK TABLE checkpoints, epochs IN ACCESS EXCLUSIVE MODE;

ALTER TABLE runs ADD COLUMN defined_under bigint NOT NULL DEFAULT 0;
UPDATE runs SET defined_under = attempts.fencing_token FROM attempts  -- which has changed it already
WHERE attempts.run_id = runs.run_id AND attempts.ended_at IS NULL AND attempts.definition_changes IS NOT NULL;
ALTER TABLE checkpoint_requests ADD COLUMN behind bigint NOT NULL DEFAULT 0;
UPDATE checkpoint_requests SET behind = coalesce(checkpoint_requests.checkpoint_id - 1, runs.last_checkpoint_id)
FROM runs WHERE runs.run_id = checkpoint_requests.run_id;
COMMENT ON TABLE checkpoint_requests IS
    'Who asked for a checkpoint by hand, behind which one, and which one answered; NULL until one has begun.';

-- Who writes anything of a run holds the lock of its row until the end of the transaction, and sees what was committed
-- before: else, of two guards neither would see what the other one lets pass. What is new waits for it; a row that is changed
-- or taken away is locked by then itself, for which whoever holds the run may wait: there it is now or never. A lease is
-- renewed without it.
CREATE FUNCTION run_lock() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'what is written to % is READ COMMITTED, not %', TG_TABLE_NAME,
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN  -- a row of runs that is written already is locked
        PERFORM FROM runs WHERE runs.run_id = NEW.run_id AND runs.xmin <> xid(pg_current_xact_id()) FOR NO KEY UPDATE;
        RETURN NEW;
    END IF;
    PERFORM FROM runs WHERE runs.run_id = OLD.run_id AND runs.xmin <> xid(pg_current_xact_id())
    FOR NO KEY UPDATE NOWAIT;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    grows boolean;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'what is written to run % is READ COMMITTED, not %', OLD.run_id,
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status IN ('FINISHED', 'STOPPED', 'DELETED') AND NEW.status = OLD.status
       AND to_jsonb(NEW) - 'revision' <> to_jsonb(OLD) - 'revision' THEN
        RAISE EXCEPTION 'run % is over or stopped and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    grows := NEW.fencing_token >= OLD.fencing_token
        AND NEW.last_checkpoint_id BETWEEN OLD.last_checkpoint_id AND OLD.last_checkpoint_id + 1 AND NEW.aborted_through >= OLD.aborted_through AND NEW.revision >= OLD.revision;
    IF NEW.last_durable_epoch < OLD.last_durable_epoch THEN
        grows := grows AND EXISTS (SELECT FROM fallbacks WHERE fallbacks.run_id = OLD.run_id
            AND fallbacks.fencing_token = OLD.fencing_token AND fallbacks.epoch = NEW.last_durable_epoch)
            AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id
                AND epochs.epoch > NEW.last_durable_epoch AND epochs.status = 'DURABLE')
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
CREATE OR REPLACE TRIGGER runs_start_guard BEFORE INSERT ON runs FOR EACH ROW
    WHEN ((NEW.status, NEW.revision, NEW.fencing_token, NEW.last_checkpoint_id, NEW.aborted_through, NEW.defined_under)
              IS DISTINCT FROM ('RUNNING', 0, 0, 0, 0, 0)
          OR num_nonnulls(NEW.attempt_id, NEW.terminated_by, NEW.failure, NEW.outputs, NEW.state_digest,
              NEW.finished_at, NEW.deleted_by, NEW.deleted_at) > 0)
    EXECUTE FUNCTION runs_start_guard();

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
        IF jsonb_typeof(NEW.output) <> 'object' OR NEW.output = '{}' THEN
            RAISE EXCEPTION 'the marker of operator % names no files', NEW.operator_id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION definition_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed CONSTANT uuid := CASE TG_OP WHEN 'INSERT' THEN NEW.run_id ELSE OLD.run_id END;
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM runs WHERE runs.run_id = changed AND runs.status = 'DELETED') THEN
        RETURN OLD;
    END IF;
    IF NOT EXISTS (SELECT FROM attempts JOIN runs USING (run_id)
                   WHERE attempts.run_id = changed AND attempts.ended_at IS NULL
                   AND attempts.definition_changes IS NOT NULL AND attempts.fencing_token > runs.defined_under
                   AND attempts.fencing_token > coalesce((SELECT epochs.fencing_token FROM epochs
                       WHERE epochs.run_id = changed AND epochs.status <> 'VOIDED'
                       ORDER BY epochs.epoch DESC LIMIT 1), 0)) THEN
        RAISE EXCEPTION 'the operators of run % cannot change now', changed USING ERRCODE = 'check_violation';
    END IF;
    IF TG_TABLE_NAME = 'runs' THEN
        NEW.defined_under := NEW.fencing_token;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE OR REPLACE TRIGGER runs_definition_guard BEFORE UPDATE OF definition, defined_under ON runs
    FOR EACH ROW EXECUTE FUNCTION definition_guard();

-- The operators of a run are those of its definition, and change with it; asked at the end of a transaction, in which both
-- do (I11).
CREATE FUNCTION operators_defined_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed CONSTANT uuid := CASE TG_OP WHEN 'DELETE' THEN OLD.run_id ELSE NEW.run_id END;
    named CONSTANT text := CASE TG_OP WHEN 'DELETE' THEN OLD.operator_id ELSE NEW.operator_id END;
BEGIN
    IF EXISTS (SELECT FROM runs LEFT JOIN operators ON operators.run_id = runs.run_id AND operators.operator_id = named
               CROSS JOIN LATERAL (SELECT runs.definition #> ARRAY['operators', named] AS says) AS declared
               WHERE runs.run_id = changed AND runs.status <> 'DELETED' AND (runs.defined_under <> runs.fencing_token
                   OR (operators.name, operators.role, operators.kind)
                      IS DISTINCT FROM (says ->> 'name', says ->> 'role', says ->> 'kind'))) THEN
        RAISE EXCEPTION 'operator % of run % is not as the definition has it, or changes without it', named, changed
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER operators_defined_guard AFTER INSERT OR DELETE OR UPDATE OF name, role, kind ON operators
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION operators_defined_guard();

CREATE FUNCTION runs_defined_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT array_agg(operators.operator_id ORDER BY operators.operator_id) FROM operators
        WHERE operators.run_id = NEW.run_id)
       IS DISTINCT FROM (SELECT array_agg(operator_id ORDER BY operator_id) FROM runs
           CROSS JOIN jsonb_object_keys(runs.definition -> 'operators') AS declared (operator_id)
           WHERE runs.run_id = NEW.run_id)
       AND EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.status <> 'DELETED') THEN
        RAISE EXCEPTION 'the operators of run % are not those of its definition', NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runs_defined_guard AFTER INSERT OR UPDATE OF definition ON runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION runs_defined_guard();

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
        IF NEW.status <> 'OPEN' OR NEW.held_at IS NOT NULL OR NEW.reports > 0 THEN
            RAISE EXCEPTION 'epoch % of run % does not begin as one that is %, or with reports', NEW.epoch, NEW.run_id,
                CASE NEW.status WHEN 'OPEN' THEN 'held' ELSE NEW.status END USING ERRCODE = 'check_violation';
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
        IF OLD.held_at IS NOT NULL AND (NEW.held_at, NEW.metrics, NEW.seconds)
           IS DISTINCT FROM (OLD.held_at, OLD.metrics, OLD.seconds) THEN
            RAISE EXCEPTION 'what epoch % measured cannot change', OLD.epoch USING ERRCODE = 'check_violation';
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

-- What an attempt left goes with all behind it (I3); asked at the end of a transaction.
CREATE FUNCTION epochs_void_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.epoch > NEW.epoch
               AND epochs.fencing_token = NEW.fencing_token AND epochs.status IN ('OPEN', 'ALIGNED')) THEN
        RAISE EXCEPTION 'epoch % of run % is void, and one behind it is not', NEW.epoch, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER epochs_void_guard AFTER UPDATE OF status ON epochs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.status = 'VOIDED') EXECUTE FUNCTION epochs_void_guard();

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
    SELECT runs.last_checkpoint_id, runs.aborted_through, CASE
            WHEN epochs.decision ->> 'terminated_by' IS NOT NULL THEN 'FINAL'
            WHEN EXISTS (SELECT FROM checkpoint_requests WHERE checkpoint_requests.run_id = NEW.run_id
                         AND checkpoint_requests.checkpoint_id IS NULL) THEN 'MANUAL'
            WHEN EXISTS (SELECT FROM stops WHERE stops.run_id = NEW.run_id AND stops.kind = 'STOP'
                         AND stops.resumed_at IS NULL) THEN 'MANUAL'
            ELSE 'PERIODIC'
        END AS kind,
        (SELECT coalesce(attempts.checkpoint_failures > CAST(attempts.policy ->> 'tolerable_failures' AS integer), false)
         FROM attempts WHERE attempts.run_id = NEW.run_id
         AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) AS has_failed
    INTO epoch FROM epochs JOIN runs USING (run_id)
    WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
        AND epochs.status = 'ALIGNED' AND NOT EXISTS (SELECT FROM epochs AS later WHERE later.run_id = NEW.run_id
            AND later.epoch > NEW.epoch AND later.status <> 'VOIDED');
    IF epoch.last_checkpoint_id IS DISTINCT FROM NEW.checkpoint_id THEN
        RAISE EXCEPTION 'checkpoint % of epoch % was not issued, or its epoch is not the last one, or has not aligned',
            NEW.checkpoint_id, NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.kind <> epoch.kind THEN
        RAISE EXCEPTION 'checkpoint % of epoch % is of kind %', NEW.checkpoint_id, NEW.epoch, NEW.kind
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.failure IS DISTINCT FROM 'ABORTED_BY_USER'
       AND (NEW.failure IS NOT NULL OR NEW.checkpoint_id <= epoch.aborted_through) THEN
        RAISE EXCEPTION 'checkpoint % of run % was aborted before it began, or begins as one that has failed',
            NEW.checkpoint_id, NEW.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF epoch.has_failed IS NULL THEN
        RAISE EXCEPTION 'nobody drives run % under token %, who would write a checkpoint', NEW.run_id,
            NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF epoch.has_failed THEN
        RAISE EXCEPTION 'checkpoint % cannot begin: too many of attempt % have failed', NEW.checkpoint_id,
            NEW.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION checkpoints_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
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
        SELECT runs.last_durable_epoch, runs.terminated_by, EXISTS (SELECT FROM branches
                WHERE branches.run_id = NEW.run_id AND branches.released_at IS NULL) AS pins_origin,
            (SELECT min(checkpoints.checkpoint_id) FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
             AND checkpoints.status = 'PENDING' AND checkpoints.checkpoint_id < NEW.checkpoint_id
             AND checkpoints.kind <> 'MANUAL') AS older
        INTO run FROM runs WHERE runs.run_id = NEW.run_id;
        IF run.last_durable_epoch <> NEW.epoch THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                       AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch <> run.last_durable_epoch) THEN
                RAISE EXCEPTION 'checkpoint % is completed, and epoch % is not the last durable one',
                    NEW.checkpoint_id, NEW.epoch USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF NEW.kind = 'FINAL' THEN
            IF run.terminated_by IS NULL OR EXISTS (SELECT FROM checkpoint_requests
                   WHERE checkpoint_requests.run_id = NEW.run_id AND checkpoint_requests.checkpoint_id IS NULL) THEN
                RAISE EXCEPTION 'checkpoint % is the final one, and run % does not terminate, or it answers not all',
                    NEW.checkpoint_id, NEW.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
        IF run.older IS NOT NULL OR run.pins_origin THEN
            RAISE EXCEPTION 'checkpoint % of run % is completed, and does not end checkpoint %, or not let its origin go',
                NEW.checkpoint_id, NEW.run_id, coalesce(CAST(run.older AS text), 'none')
                USING ERRCODE = 'check_violation';
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
    ELSIF NEW.status = 'ABORTED' AND OLD.status IS DISTINCT FROM 'ABORTED' THEN
        IF NOT (CASE NEW.failure
            WHEN 'ATTEMPT_ENDED' THEN EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NOT NULL)
            WHEN 'ABORTED_BY_USER' THEN EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
                AND runs.aborted_through >= NEW.checkpoint_id)
            WHEN 'SUBSUMED' THEN NEW.kind <> 'MANUAL' AND EXISTS (SELECT FROM checkpoints
                WHERE checkpoints.run_id = NEW.run_id AND checkpoints.status = 'COMPLETED'
                AND checkpoints.checkpoint_id > NEW.checkpoint_id)
            ELSE true  -- it has failed, and is counted
        END) THEN
            RAISE EXCEPTION 'checkpoint % of run % is not aborted by %', NEW.checkpoint_id, NEW.run_id, NEW.failure
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- An id is issued for a checkpoint that begins (I7, I17); asked at the end of a transaction.
CREATE FUNCTION runs_issued_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
                   AND checkpoints.checkpoint_id = NEW.last_checkpoint_id) THEN
        RAISE EXCEPTION 'id % of run % is issued, and no checkpoint begins under it', NEW.last_checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runs_issued_guard AFTER UPDATE OF last_checkpoint_id ON runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION runs_issued_guard();

CREATE OR REPLACE FUNCTION checkpoint_requests_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.checkpoint_id IS NOT NULL OR EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
               AND (runs.status NOT IN ('RUNNING', 'FAILED') OR runs.terminated_by IS NOT NULL)) THEN
            RAISE EXCEPTION 'run % does not go on, or the request begins as answered', NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.behind := coalesce((SELECT runs.last_checkpoint_id FROM runs WHERE runs.run_id = NEW.run_id), 0);
        RETURN NEW;
    END IF;
    IF (NEW.request_id, NEW.run_id, NEW.requested_by, NEW.requested_at, NEW.behind)
       IS DISTINCT FROM (OLD.request_id, OLD.run_id, OLD.requested_by, OLD.requested_at, OLD.behind) THEN
        RAISE EXCEPTION 'the identity of request % cannot change', OLD.request_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.checkpoint_id IS NOT NULL AND NEW.checkpoint_id IS DISTINCT FROM OLD.checkpoint_id THEN
        RAISE EXCEPTION 'request % is answered', OLD.request_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.checkpoint_id IS NULL AND NEW.checkpoint_id IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM checkpoints JOIN runs USING (run_id) WHERE runs.run_id = OLD.run_id
               AND checkpoints.checkpoint_id = NEW.checkpoint_id AND checkpoints.kind <> 'PERIODIC'
               AND (checkpoints.checkpoint_id > OLD.behind
                   OR checkpoints.kind = 'FINAL' AND checkpoints.status = 'COMPLETED')
               AND checkpoints.checkpoint_id = runs.last_checkpoint_id) THEN
            RAISE EXCEPTION 'checkpoint % does not answer request %', NEW.checkpoint_id, OLD.request_id
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- What is made by hand, or ends the run, answers all who asked when it began (I13); asked at the end of a transaction.
CREATE FUNCTION checkpoints_answer_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM checkpoint_requests WHERE checkpoint_requests.run_id = NEW.run_id
               AND checkpoint_requests.checkpoint_id IS NULL AND checkpoint_requests.behind < NEW.checkpoint_id) THEN
        RAISE EXCEPTION 'checkpoint % of run % begins, and does not answer who asked for it', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER checkpoints_answer_guard AFTER INSERT ON checkpoints DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.kind <> 'PERIODIC') EXECUTE FUNCTION checkpoints_answer_guard();

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
    IF jsonb_typeof(NEW.output) <> 'object' OR NEW.output = '{}' OR NEW.voided_at IS NOT NULL THEN
        RAISE EXCEPTION 'a part of operator % names no files, or begins as void', NEW.operator_id
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

-- By its name the first trigger that is asked. An attempt's lease alone is renewed beside who holds the run's lock.
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON operators FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON pins FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON epochs FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON checkpoint_requests FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON stops FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON edge_parts FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON listener_notices FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON committables FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON fallbacks FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON branches FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR UPDATE OR DELETE ON checkpoint_pins FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock BEFORE INSERT OR DELETE ON attempts FOR EACH ROW EXECUTE FUNCTION run_lock();
CREATE TRIGGER a_run_lock_but_for_leases BEFORE UPDATE ON attempts FOR EACH ROW
    WHEN (to_jsonb(NEW) - 'lease_expires_at' <> to_jsonb(OLD) - 'lease_expires_at') EXECUTE FUNCTION run_lock();
