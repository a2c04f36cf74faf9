-- The second version: how checkpoints are paced and why they fail, epochs that are held and that switch to unaligned,
-- durable edges, requests of persons, notices of listeners, and operators that change between attempts (I13 to I17).

-- What a row of runs, epochs and checkpoints may hold is checked by their guards from here on: an update of such a row
-- reads every CHECK of its table anew, which took a fifth of the time that an epoch's records take.
ALTER TABLE runs
    DROP CONSTRAINT runs_run_key_check,
    DROP CONSTRAINT runs_max_buckets_check,
    DROP CONSTRAINT runs_max_epochs_check,
    DROP CONSTRAINT runs_status_check,
    DROP CONSTRAINT runs_fencing_token_check,
    DROP CONSTRAINT runs_last_durable_epoch_check,
    DROP CONSTRAINT runs_terminated_by_check,
    DROP CONSTRAINT runs_terminating_check,
    DROP CONSTRAINT runs_running_check,
    DROP CONSTRAINT runs_finished_check,
    DROP CONSTRAINT runs_failure_check;
ALTER TABLE epochs
    DROP CONSTRAINT epochs_epoch_check,
    DROP CONSTRAINT epochs_status_check,
    DROP CONSTRAINT epochs_reports_check,
    DROP CONSTRAINT epochs_open_check,
    DROP CONSTRAINT epochs_aligned_check,
    DROP CONSTRAINT epochs_durable_check;
ALTER TABLE checkpoints
    DROP CONSTRAINT checkpoints_checkpoint_id_check,
    DROP CONSTRAINT checkpoints_kind_check,
    DROP CONSTRAINT checkpoints_status_check,
    DROP CONSTRAINT checkpoints_acknowledged_check,
    DROP CONSTRAINT checkpoints_completed_check,
    DROP CONSTRAINT checkpoints_manifest_check,
    DROP CONSTRAINT checkpoints_aborted_check,
    DROP CONSTRAINT checkpoints_ended_check;

ALTER TABLE runs
    ADD COLUMN aborted_through bigint NOT NULL DEFAULT 0,
    ADD COLUMN attempt_id uuid;

-- Who holds the token in force; a finished run cannot change any more, and nobody writes to it.
UPDATE runs SET attempt_id = attempts.attempt_id FROM attempts
WHERE attempts.run_id = runs.run_id AND attempts.fencing_token = runs.fencing_token AND runs.status <> 'FINISHED';

-- A run's token, its durable epochs and its checkpoint ids only grow (I1, I6, I7).
CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'FINISHED' AND NEW.status = 'FINISHED' THEN
        RAISE EXCEPTION 'run % is finished and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
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

-- What else a run's row may hold, and its steps; on the columns alone that the updates of every epoch leave alone.
CREATE FUNCTION runs_row_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
            ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING')) THEN
            RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
            RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'FINISHED' THEN
            IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'PENDING')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN')
               OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED') THEN
                RAISE EXCEPTION 'run % has something that is not durable', OLD.run_id USING ERRCODE = 'check_violation';
            END IF;
        END IF;
    END IF;
    broken := CASE
        WHEN NEW.run_key = '' THEN 'runs_run_key_check'
        WHEN NEW.max_buckets < 1 THEN 'runs_max_buckets_check'
        WHEN NEW.max_epochs < 1 THEN 'runs_max_epochs_check'
        WHEN NEW.status NOT IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED') THEN 'runs_status_check'
        WHEN NEW.fencing_token < 0 THEN 'runs_fencing_token_check'
        WHEN NEW.last_durable_epoch < -1 THEN 'runs_last_durable_epoch_check'
        WHEN NEW.aborted_through NOT BETWEEN 0 AND NEW.last_checkpoint_id + 1 THEN 'runs_aborted_through_check'
        WHEN NEW.terminated_by NOT IN ('criteria', 'empty_feedback', 'max_epochs') THEN 'runs_terminated_by_check'
        WHEN NEW.status IN ('TERMINATING', 'FINISHED')
            AND (NEW.terminated_by IS NULL OR NEW.last_durable_epoch < 0) THEN 'runs_terminating_check'
        WHEN NEW.status = 'RUNNING' AND NEW.terminated_by IS NOT NULL THEN 'runs_running_check'
        WHEN (NEW.status = 'FINISHED') <> (NEW.outputs IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.state_digest IS NOT NULL)
            OR (NEW.status = 'FINISHED') <> (NEW.finished_at IS NOT NULL) THEN 'runs_finished_check'
        WHEN (NEW.status = 'FAILED') <> (NEW.failure IS NOT NULL) THEN 'runs_failure_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'run % breaks %', NEW.run_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER runs_row_guard BEFORE INSERT OR UPDATE OF
    run_id, run_key, reference, max_buckets, max_epochs, created_at, status, fencing_token, attempt_id, aborted_through,
    terminated_by, failure, outputs, state_digest, finished_at ON runs
    FOR EACH ROW EXECUTE FUNCTION runs_row_guard();

DROP TRIGGER runs_request_guard ON runs;
CREATE TRIGGER runs_request_guard BEFORE UPDATE OF params, state_uri, max_epochs ON runs
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('the request');

ALTER TABLE attempts
    ADD COLUMN policy jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN checkpoint_failures integer NOT NULL DEFAULT 0,
    ADD COLUMN definition_changes text[],
    ADD CONSTRAINT attempts_checkpoint_failures_check CHECK (checkpoint_failures >= 0);

-- An attempt holds the token in force when it begins; one that has ended never comes back, and none changes whose it is (I1).
CREATE OR REPLACE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.fencing_token <> (SELECT runs.fencing_token FROM runs WHERE runs.run_id = NEW.run_id) THEN
            RAISE EXCEPTION 'token % of run % is not in force', NEW.fencing_token, NEW.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.run_id, NEW.fencing_token, NEW.attempt_id, NEW.holder, NEW.policy, NEW.started_at)
       IS DISTINCT FROM (OLD.run_id, OLD.fencing_token, OLD.attempt_id, OLD.holder, OLD.policy, OLD.started_at) THEN
        RAISE EXCEPTION 'the identity of attempt % cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.ended_at IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % has ended and cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER attempts_guard ON attempts;
CREATE TRIGGER attempts_guard BEFORE INSERT OR UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION attempts_guard();

-- Which operators a run has changes only under a live attempt that says what changed, before it opens an epoch.
CREATE FUNCTION definition_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL
                   AND attempts.definition_changes IS NOT NULL AND attempts.fencing_token > coalesce((
                       SELECT epochs.fencing_token FROM epochs
                       WHERE epochs.run_id = OLD.run_id AND epochs.status <> 'VOIDED'
                       ORDER BY epochs.epoch DESC LIMIT 1), 0)) THEN
        RAISE EXCEPTION 'the operators of run % cannot change now', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER runs_definition_guard BEFORE UPDATE OF definition ON runs
    FOR EACH ROW EXECUTE FUNCTION definition_guard();
CREATE TRIGGER operators_definition_guard BEFORE UPDATE OF position, name, role, kind OR DELETE ON operators
    FOR EACH ROW EXECUTE FUNCTION definition_guard();

-- An operator is itself by its id alone, and what it left when it finished stays (I11).
CREATE OR REPLACE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.operator_id) IS DISTINCT FROM (OLD.run_id, OLD.operator_id) THEN
        RAISE EXCEPTION 'the identity of operator % cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.finished_at IS NOT NULL AND (NEW.finished_epoch, NEW.fencing_token, NEW.output, NEW.finished_at)
       IS DISTINCT FROM (OLD.finished_epoch, OLD.fencing_token, OLD.output, OLD.finished_at) THEN
        RAISE EXCEPTION 'operator % has finished and cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

ALTER TABLE epochs
    ADD COLUMN unaligned_by text,
    ADD COLUMN unaligned_at timestamptz,
    ADD COLUMN held_at timestamptz;
UPDATE epochs SET held_at = aligned_at WHERE aligned_at IS NOT NULL;
-- What the heads reported becomes a part of the epoch.
ALTER TABLE epochs ADD COLUMN records jsonb;
UPDATE epochs SET records = (
    SELECT jsonb_object_agg(head, to_jsonb(head_reports.records)) FROM head_reports
    WHERE head_reports.run_id = epochs.run_id AND head_reports.epoch = epochs.epoch
        AND head_reports.fencing_token = epochs.fencing_token
);
ALTER TABLE epochs
    ALTER COLUMN records SET NOT NULL,
    ALTER COLUMN reports DROP DEFAULT;
DROP TABLE head_reports;
-- With epochs_open_key, so that those that are not durable are found however many are.
CREATE INDEX epochs_aligned_idx ON epochs (run_id) WHERE status = 'ALIGNED';

-- An epoch follows one that is aligned or durable and does not end the run (I3, I9); what it was decided from stays (I5).
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
        IF NEW.epoch > 0 AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
               AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
               AND epochs.decision ->> 'terminated_by' IS NULL) THEN
            RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('OPEN', 'ALIGNED'), ('ALIGNED', 'DURABLE'), ('OPEN', 'VOIDED'), ('ALIGNED', 'VOIDED')) THEN
            RAISE EXCEPTION 'epoch % cannot go from % to %', OLD.epoch, OLD.status, NEW.status
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
DROP TRIGGER epochs_guard ON epochs;
CREATE TRIGGER epochs_guard BEFORE INSERT OR UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION epochs_guard();

-- Version 1 kept the reason of an aborted checkpoint in words alone.
ALTER TABLE checkpoints ADD COLUMN failure text;
UPDATE checkpoints SET failure = CASE
    WHEN reason LIKE 'subsumed by %' THEN 'SUBSUMED'
    WHEN reason LIKE 'its attempt %' THEN 'ATTEMPT_ENDED'
    ELSE 'DECLINED'
END WHERE status = 'ABORTED';
ALTER TABLE checkpoints ADD COLUMN acknowledgements jsonb;
UPDATE checkpoints SET acknowledgements = (
    SELECT jsonb_object_agg(participant, to_jsonb(subtasks)) FROM acknowledgements
    WHERE acknowledgements.run_id = checkpoints.run_id AND acknowledgements.checkpoint_id = checkpoints.checkpoint_id
);
ALTER TABLE checkpoints
    ALTER COLUMN acknowledgements SET NOT NULL,
    ALTER COLUMN acknowledged DROP DEFAULT;
DROP TABLE acknowledgements;

-- A search for a checkpoint by its id takes no index that begins with the run for the primary key.
DROP INDEX checkpoints_epoch_key;
CREATE UNIQUE INDEX checkpoints_epoch_key ON checkpoints (epoch, run_id, fencing_token) WHERE status <> 'ABORTED';

CREATE OR REPLACE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken text;
BEGIN
    IF TG_OP = 'INSERT' OR NEW.acknowledgements <> OLD.acknowledgements THEN
        IF jsonb_path_exists(NEW.acknowledgements, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
           OR jsonb_path_exists(NEW.acknowledgements, 'strict $.*[*] ? (@.type() != "null" && @.type() != "number"
               || @.type() == "number" && @ != 1)', '{}', true) THEN
            RAISE EXCEPTION 'the acknowledgements of checkpoint % are not those of subtasks', NEW.checkpoint_id
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.expected := jsonb_array_length(jsonb_path_query_array(NEW.acknowledgements, '$.*[*]'));
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
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('PENDING', 'COMPLETED'), ('PENDING', 'ABORTED'), ('PENDING', 'SUBSUMED'), ('COMPLETED', 'SUBSUMED'),
            ('SUBSUMED', 'DISCARDED')) THEN
            RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.manifest_sha256 IS NOT NULL AND (NEW.manifest_path, NEW.manifest_sha256)
           IS DISTINCT FROM (OLD.manifest_path, OLD.manifest_sha256) THEN
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
            OR NEW.manifest_sha256 !~ '^[0-9a-f]{64}$' THEN 'checkpoints_manifest_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.reason IS NOT NULL) THEN 'checkpoints_aborted_check'
        WHEN NEW.failure NOT IN ('DECLINED', 'EXPIRED', 'ABORTED_BY_USER', 'SUBSUMED', 'ATTEMPT_ENDED')
            THEN 'checkpoints_failure_check'
        WHEN (NEW.status = 'ABORTED') <> (NEW.failure IS NOT NULL) THEN 'checkpoints_failed_check'
        WHEN (NEW.status = 'PENDING') <> (NEW.ended_at IS NULL) THEN 'checkpoints_ended_check'
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'checkpoint % breaks %', NEW.checkpoint_id, broken
            USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'checkpoints';
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER checkpoints_guard ON checkpoints;
CREATE TRIGGER checkpoints_guard BEFORE INSERT OR UPDATE ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_guard();

CREATE TABLE checkpoint_requests (
    request_id     uuid PRIMARY KEY,
    run_id         uuid NOT NULL REFERENCES runs,
    requested_by   text NOT NULL,
    requested_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    checkpoint_id  bigint,
    CONSTRAINT checkpoint_requests_checkpoint_fkey FOREIGN KEY (run_id, checkpoint_id) REFERENCES checkpoints
);
CREATE INDEX checkpoint_requests_answer_idx ON checkpoint_requests (run_id, checkpoint_id);

COMMENT ON TABLE checkpoint_requests IS
    'Who asked for a checkpoint by hand, and which one answered; NULL until one has begun.';

-- A request is who asked what of one run when, and is answered once.
CREATE FUNCTION checkpoint_requests_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.request_id, NEW.run_id, NEW.requested_by, NEW.requested_at)
       IS DISTINCT FROM (OLD.request_id, OLD.run_id, OLD.requested_by, OLD.requested_at) THEN
        RAISE EXCEPTION 'the identity of request % cannot change', OLD.request_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.checkpoint_id IS NOT NULL AND NEW.checkpoint_id IS DISTINCT FROM OLD.checkpoint_id THEN
        RAISE EXCEPTION 'request % is answered', OLD.request_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoint_requests_guard BEFORE UPDATE ON checkpoint_requests
    FOR EACH ROW EXECUTE FUNCTION checkpoint_requests_guard();

CREATE TABLE edge_parts (
    part_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id         uuid NOT NULL,
    epoch          bigint NOT NULL,
    operator_id    text NOT NULL,
    first_bucket   integer NOT NULL,
    end_bucket     integer NOT NULL,
    total          integer NOT NULL,
    fencing_token  bigint NOT NULL,
    output         jsonb NOT NULL,
    metrics        jsonb NOT NULL,
    finished_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    voided_at      timestamptz,
    CONSTRAINT edge_parts_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT edge_parts_epoch_check CHECK (epoch >= -1),
    CONSTRAINT edge_parts_buckets_check CHECK (
        0 <= first_bucket AND first_bucket < end_bucket AND end_bucket <= total
    )
);
CREATE UNIQUE INDEX edge_parts_live_key ON edge_parts (run_id, epoch, operator_id, first_bucket)
    WHERE voided_at IS NULL;

COMMENT ON TABLE edge_parts IS
    'Which buckets of an operator''s output are durable inside an epoch; epoch -1 for one that finishes for good (I15).';

-- A bucket is marked once, by the attempt whose epoch is open and has switched to unaligned (I15).
CREATE FUNCTION edge_parts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM edge_parts AS known
               WHERE known.run_id = NEW.run_id AND known.epoch = NEW.epoch AND known.operator_id = NEW.operator_id
               AND known.voided_at IS NULL AND (known.total <> NEW.total
                   OR known.first_bucket < NEW.end_bucket AND NEW.first_bucket < known.end_bucket)) THEN
        RAISE EXCEPTION 'buckets % to % of operator % in epoch % do not fit what is finished',
            NEW.first_bucket, NEW.end_bucket, NEW.operator_id, NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch = -1 AND EXISTS (SELECT FROM operators WHERE operators.run_id = NEW.run_id
           AND operators.operator_id = NEW.operator_id AND operators.finished_at IS NOT NULL) THEN
        RAISE EXCEPTION 'operator % has finished', NEW.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch >= 0 AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
           AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
           AND epochs.status = 'OPEN' AND epochs.unaligned_by IS NOT NULL) THEN
        RAISE EXCEPTION 'epoch % is not open and unaligned', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER edge_parts_guard BEFORE INSERT ON edge_parts FOR EACH ROW EXECUTE FUNCTION edge_parts_guard();

CREATE FUNCTION edge_parts_void_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.voided_at IS NOT NULL OR NEW.voided_at IS NULL
       OR to_jsonb(NEW) - 'voided_at' IS DISTINCT FROM to_jsonb(OLD) - 'voided_at' THEN
        RAISE EXCEPTION 'a part of operator % in epoch % is voided once, and else cannot change',
            OLD.operator_id, OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER edge_parts_void_guard BEFORE UPDATE ON edge_parts
    FOR EACH ROW EXECUTE FUNCTION edge_parts_void_guard();

CREATE TABLE listener_notices (
    run_id         uuid NOT NULL,
    listener_id    text NOT NULL,
    epoch          bigint NOT NULL,
    fencing_token  bigint NOT NULL,
    effect         jsonb,
    noticed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT listener_notices_pkey PRIMARY KEY (run_id, listener_id, epoch),
    CONSTRAINT listener_notices_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT listener_notices_epoch_check CHECK (epoch >= 0)
);

COMMENT ON TABLE listener_notices IS 'Which durable epochs a listener has heard of, and what it returned (I16).';

CREATE FUNCTION listener_notices_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch > (SELECT last_durable_epoch FROM runs WHERE runs.run_id = NEW.run_id) THEN
        RAISE EXCEPTION 'epoch % is not durable', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER listener_notices_guard BEFORE INSERT ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION listener_notices_guard();
CREATE TRIGGER listener_notices_change_guard BEFORE UPDATE ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('a notice');
