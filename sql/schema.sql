-- The store as it is now. Illegal rows and transitions are refused here, by the database itself; the rules behind the
-- constraints are the invariants of iteration_lib/protocol (I1 to I17).

CREATE TABLE runs (
    run_id               uuid PRIMARY KEY,
    run_key              text NOT NULL,
    reference            text NOT NULL,
    definition           jsonb NOT NULL,
    params               jsonb NOT NULL,
    state_uri            text NOT NULL,
    max_buckets          integer NOT NULL,
    max_epochs           integer,
    status               text NOT NULL DEFAULT 'RUNNING',
    revision             bigint NOT NULL DEFAULT 0,
    fencing_token        bigint NOT NULL DEFAULT 0,
    last_durable_epoch   bigint NOT NULL DEFAULT -1,
    last_checkpoint_id   bigint NOT NULL DEFAULT 0,
    terminated_by        text,
    failure              text,
    outputs              jsonb,
    state_digest         text,
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at          timestamptz,
    aborted_through      bigint NOT NULL DEFAULT 0,
    attempt_id           uuid,
    CONSTRAINT runs_run_key_key UNIQUE (run_key),
    CONSTRAINT runs_run_key_check CHECK (run_key <> ''),
    CONSTRAINT runs_max_buckets_check CHECK (max_buckets >= 1),
    CONSTRAINT runs_max_epochs_check CHECK (max_epochs >= 1),
    CONSTRAINT runs_status_check CHECK (status IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED')),
    CONSTRAINT runs_fencing_token_check CHECK (fencing_token >= 0),
    CONSTRAINT runs_last_durable_epoch_check CHECK (last_durable_epoch >= -1),
    CONSTRAINT runs_aborted_through_check CHECK (aborted_through BETWEEN 0 AND last_checkpoint_id + 1),
    CONSTRAINT runs_terminated_by_check CHECK (terminated_by IN ('criteria', 'empty_feedback', 'max_epochs')),
    CONSTRAINT runs_terminating_check CHECK (
        status NOT IN ('TERMINATING', 'FINISHED') OR (terminated_by IS NOT NULL AND last_durable_epoch >= 0)
    ),
    CONSTRAINT runs_running_check CHECK (status <> 'RUNNING' OR terminated_by IS NULL),
    CONSTRAINT runs_finished_check CHECK (
        (status = 'FINISHED') = (outputs IS NOT NULL)
        AND (status = 'FINISHED') = (state_digest IS NOT NULL)
        AND (status = 'FINISHED') = (finished_at IS NOT NULL)
    ),
    CONSTRAINT runs_failure_check CHECK ((status = 'FAILED') = (failure IS NOT NULL))
) WITH (fillfactor = 50);

COMMENT ON TABLE runs IS 'One execution of an iteration; its row is locked first by every transaction that changes it.';

-- A run's identity never changes, and its token, its durable epochs and its checkpoint ids only grow (I1, I6, I7).
CREATE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.run_key, NEW.reference, NEW.max_buckets, NEW.created_at)
       IS DISTINCT FROM (OLD.run_id, OLD.run_key, OLD.reference, OLD.max_buckets, OLD.created_at) THEN
        RAISE EXCEPTION 'the identity of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fencing_token < OLD.fencing_token OR NEW.last_durable_epoch < OLD.last_durable_epoch
       OR NEW.last_checkpoint_id < OLD.last_checkpoint_id OR NEW.aborted_through < OLD.aborted_through
       OR NEW.revision < OLD.revision THEN
        RAISE EXCEPTION 'run %: tokens, durable epochs and checkpoint ids only grow', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.attempt_id IS DISTINCT FROM OLD.attempt_id AND NEW.fencing_token = OLD.fencing_token THEN
        RAISE EXCEPTION 'who holds the token of run % cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('RUNNING', 'TERMINATING'), ('TERMINATING', 'FINISHED'), ('RUNNING', 'FAILED'),
        ('TERMINATING', 'FAILED'), ('FAILED', 'RUNNING'), ('FAILED', 'TERMINATING')) THEN
        RAISE EXCEPTION 'run % cannot go from % to %', OLD.run_id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status = 'FINISHED' THEN
        RAISE EXCEPTION 'run % is finished and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.terminated_by IS NOT NULL AND NEW.terminated_by IS DISTINCT FROM OLD.terminated_by THEN
        RAISE EXCEPTION 'the rule that terminated run % cannot change', OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.last_durable_epoch <> OLD.last_durable_epoch AND (
        NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                    AND checkpoints.status = 'COMPLETED' AND checkpoints.epoch = NEW.last_durable_epoch)
        OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN'
                   AND epochs.epoch <= NEW.last_durable_epoch)
        OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED'
                   AND epochs.epoch <= NEW.last_durable_epoch)) THEN
        RAISE EXCEPTION 'run %: no completed checkpoint makes every epoch up to % durable', OLD.run_id,
            NEW.last_durable_epoch USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status = 'FINISHED' AND (
        EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id AND checkpoints.status = 'PENDING')
        OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'OPEN')
        OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = OLD.run_id AND epochs.status = 'ALIGNED')) THEN
        RAISE EXCEPTION 'run % has something that is not durable', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER runs_guard BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION runs_guard();

-- What is written once; on its columns alone, so that the updates of every epoch do not compare them.
CREATE FUNCTION unchangeable_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of run % cannot change', TG_ARGV[0], OLD.run_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER runs_request_guard BEFORE UPDATE OF params, state_uri, max_epochs ON runs
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('the request');

CREATE TABLE attempts (
    run_id               uuid NOT NULL REFERENCES runs,
    fencing_token        bigint NOT NULL,
    attempt_id           uuid NOT NULL,
    holder               jsonb NOT NULL,
    started_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_expires_at     timestamptz NOT NULL,
    ended_at             timestamptz,
    outcome              text,
    reason               text,
    policy               jsonb NOT NULL DEFAULT '{}',
    checkpoint_failures  integer NOT NULL DEFAULT 0,
    definition_changes   text[],
    CONSTRAINT attempts_pkey PRIMARY KEY (run_id, fencing_token),
    CONSTRAINT attempts_attempt_id_key UNIQUE (attempt_id),
    CONSTRAINT attempts_fencing_token_check CHECK (fencing_token >= 1),
    CONSTRAINT attempts_outcome_check CHECK (outcome IN ('RELEASED', 'FINISHED', 'FAILED', 'SUPERSEDED')),
    CONSTRAINT attempts_checkpoint_failures_check CHECK (checkpoint_failures >= 0),
    CONSTRAINT attempts_ended_check CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX attempts_live_key ON attempts (run_id) WHERE ended_at IS NULL;

COMMENT ON TABLE attempts IS 'One process that drives, or drove, a run; at most one of a run is live (I1).';

-- An attempt holds the token in force when it begins; one that has ended never comes back, and none changes whose it is (I1).
CREATE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER attempts_guard BEFORE INSERT OR UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION attempts_guard();

CREATE TABLE operators (
    run_id          uuid NOT NULL REFERENCES runs,
    operator_id     text NOT NULL,
    position        integer NOT NULL,
    name            text NOT NULL,
    role            text NOT NULL,
    kind            text NOT NULL,
    finished_epoch  bigint,
    fencing_token   bigint,
    output          jsonb,
    finished_at     timestamptz,
    CONSTRAINT operators_pkey PRIMARY KEY (run_id, operator_id),
    CONSTRAINT operators_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT operators_role_check CHECK (role IN ('data', 'variable', 'operator')),
    CONSTRAINT operators_kind_check CHECK (kind IN ('data', 'value', 'buckets', 'frame')),
    CONSTRAINT operators_finished_check CHECK (
        num_nulls(finished_epoch, fencing_token, output, finished_at) IN (0, 4)
    )
);

COMMENT ON TABLE operators IS 'The operators of a run; one that finished for good names the files of its output (I11).';

-- An operator is itself by its id alone, and what it left when it finished stays (I11).
CREATE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER operators_guard BEFORE UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION operators_guard();

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

CREATE TABLE pins (
    run_id         uuid NOT NULL REFERENCES runs,
    name           text NOT NULL,
    fencing_token  bigint NOT NULL,
    fingerprint    text NOT NULL,
    pin            jsonb NOT NULL,
    pinned_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pins_pkey PRIMARY KEY (run_id, name),
    CONSTRAINT pins_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts
);

CREATE TRIGGER pins_guard BEFORE UPDATE ON pins FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('a pin');

COMMENT ON TABLE pins IS 'What each data stream of a run reads, fixed when the run started.';

CREATE TABLE epochs (
    run_id            uuid NOT NULL,
    epoch             bigint NOT NULL,
    fencing_token     bigint NOT NULL,
    status            text NOT NULL DEFAULT 'OPEN',
    decision          jsonb,
    metrics           jsonb NOT NULL DEFAULT '{}',
    seconds           double precision,
    opened_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    aligned_at        timestamptz,
    durable_at        timestamptz,
    unaligned_by      text,
    unaligned_at      timestamptz,
    held_at           timestamptz,
    records           jsonb NOT NULL,
    expected_reports  integer NOT NULL
        GENERATED ALWAYS AS (jsonb_array_length(jsonb_path_query_array(records, '$.*[*]'))) STORED,
    reports           integer NOT NULL
        GENERATED ALWAYS AS (jsonb_array_length(jsonb_path_query_array(records, '$.*[*] ? (@ != null)'))) STORED,
    CONSTRAINT epochs_pkey PRIMARY KEY (run_id, epoch, fencing_token),
    CONSTRAINT epochs_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT epochs_epoch_check CHECK (epoch >= 0),
    CONSTRAINT epochs_status_check CHECK (status IN ('OPEN', 'ALIGNED', 'DURABLE', 'VOIDED')),
    CONSTRAINT epochs_reports_check CHECK (expected_reports >= 1),
    CONSTRAINT epochs_held_check CHECK ((held_at IS NOT NULL) = (reports = expected_reports)),
    CONSTRAINT epochs_unaligned_by_check CHECK (unaligned_by IN ('timeout', 'preemption')),
    CONSTRAINT epochs_unaligned_check CHECK ((unaligned_by IS NULL) = (unaligned_at IS NULL)),
    CONSTRAINT epochs_open_check CHECK (status <> 'OPEN' OR (aligned_at IS NULL AND decision IS NULL)),
    CONSTRAINT epochs_aligned_check CHECK (
        status NOT IN ('ALIGNED', 'DURABLE')
        OR (reports = expected_reports AND decision IS NOT NULL AND aligned_at IS NOT NULL)
    ),
    CONSTRAINT epochs_durable_check CHECK ((status = 'DURABLE') = (durable_at IS NOT NULL))
) WITH (fillfactor = 70);
-- An epoch exists once, whatever was voided before (I3), and at most one of a run is open.
CREATE UNIQUE INDEX epochs_epoch_key ON epochs (run_id, epoch) WHERE status <> 'VOIDED';
CREATE UNIQUE INDEX epochs_open_key ON epochs (run_id) WHERE status = 'OPEN';
-- With epochs_open_key, so that those that are not durable are found however many are.
CREATE INDEX epochs_aligned_idx ON epochs (run_id) WHERE status = 'ALIGNED';

COMMENT ON TABLE epochs IS 'One pass of a run under one token: OPEN, ALIGNED, DURABLE, or VOIDED when superseded.';

-- An epoch follows one that is aligned or durable and does not end the run (I3, I9); what it was decided from stays (I5).
CREATE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.epoch > 0 AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
               AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
               AND epochs.decision ->> 'terminated_by' IS NULL) THEN
            RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
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
    RETURN NEW;
END $$;
CREATE TRIGGER epochs_guard BEFORE INSERT OR UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION epochs_guard();

-- What the heads of an epoch reported: counts per subtask, NULL until it has reported (I4); then they stay (I5).
CREATE FUNCTION epochs_records_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_path_exists(NEW.records, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
       OR jsonb_path_exists(NEW.records, '$.*[*] ? (@.type() != "null" && (@.type() != "number" || @ < 0))') THEN
        RAISE EXCEPTION 'the reports of epoch % are no counts of subtasks', NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.status <> 'OPEN'
           OR jsonb_path_query_array(NEW.records, '$.keyvalue().key')
              <> jsonb_path_query_array(OLD.records, '$.keyvalue().key')
           OR jsonb_path_query_array(NEW.records, '$.*.size()')
              <> jsonb_path_query_array(OLD.records, '$.*.size()')) THEN
        RAISE EXCEPTION 'the reports of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER epochs_records_guard BEFORE INSERT OR UPDATE OF records ON epochs
    FOR EACH ROW EXECUTE FUNCTION epochs_records_guard();

CREATE TABLE checkpoints (
    run_id           uuid NOT NULL,
    checkpoint_id    bigint NOT NULL,
    epoch            bigint NOT NULL,
    fencing_token    bigint NOT NULL,
    kind             text NOT NULL,
    status           text NOT NULL DEFAULT 'PENDING',
    manifest_path    text,
    manifest_sha256  text,
    size_bytes       bigint,
    reason           text,
    triggered_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at         timestamptz,
    failure          text,
    acknowledgements jsonb NOT NULL,
    expected         integer NOT NULL
        GENERATED ALWAYS AS (jsonb_array_length(jsonb_path_query_array(acknowledgements, '$.*[*]'))) STORED,
    acknowledged     integer NOT NULL
        GENERATED ALWAYS AS (jsonb_array_length(jsonb_path_query_array(acknowledgements, '$.*[*] ? (@ != null)'))) STORED,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (run_id, checkpoint_id),
    CONSTRAINT checkpoints_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs,
    CONSTRAINT checkpoints_checkpoint_id_check CHECK (checkpoint_id >= 1),
    CONSTRAINT checkpoints_kind_check CHECK (kind IN ('PERIODIC', 'MANUAL', 'FINAL')),
    CONSTRAINT checkpoints_status_check CHECK (
        status IN ('PENDING', 'COMPLETED', 'ABORTED', 'SUBSUMED', 'DISCARDED')
    ),
    CONSTRAINT checkpoints_acknowledged_check CHECK (expected >= 1),
    CONSTRAINT checkpoints_completed_check CHECK (
        status IN ('PENDING', 'ABORTED')
        OR (acknowledged = expected AND manifest_path IS NOT NULL AND size_bytes IS NOT NULL)
    ),
    CONSTRAINT checkpoints_manifest_check CHECK (
        (manifest_path IS NULL) = (manifest_sha256 IS NULL) AND manifest_sha256 ~ '^[0-9a-f]{64}$'
    ),
    CONSTRAINT checkpoints_aborted_check CHECK ((status = 'ABORTED') = (reason IS NOT NULL)),
    CONSTRAINT checkpoints_failure_check CHECK (
        failure IN ('DECLINED', 'EXPIRED', 'ABORTED_BY_USER', 'SUBSUMED', 'ATTEMPT_ENDED')
    ),
    CONSTRAINT checkpoints_failed_check CHECK ((status = 'ABORTED') = (failure IS NOT NULL)),
    CONSTRAINT checkpoints_ended_check CHECK ((status = 'PENDING') = (ended_at IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX checkpoints_completed_key ON checkpoints (run_id) WHERE status = 'COMPLETED';
CREATE INDEX checkpoints_pending_idx ON checkpoints (run_id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX checkpoints_epoch_key ON checkpoints (epoch, run_id, fencing_token) WHERE status <> 'ABORTED';

COMMENT ON TABLE checkpoints IS 'Pending, completed, aborted, subsumed, discarded; at most one of a run is COMPLETED (I8).';

CREATE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
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
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoints_guard BEFORE UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION checkpoints_guard();

-- Which subtasks of the participants have acknowledged: 1, or NULL for not yet (I8).
CREATE FUNCTION checkpoints_acknowledgements_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_path_exists(NEW.acknowledgements, 'strict $.* ? (@.type() != "array" || @.size() == 0)')
       OR jsonb_path_exists(NEW.acknowledgements, '$.*[*] ? (@ != null && @ != 1)') THEN
        RAISE EXCEPTION 'the acknowledgements of checkpoint % are not those of subtasks', NEW.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.status <> 'PENDING'
           OR jsonb_path_query_array(NEW.acknowledgements, '$.keyvalue().key')
              <> jsonb_path_query_array(OLD.acknowledgements, '$.keyvalue().key')
           OR jsonb_path_query_array(NEW.acknowledgements, '$.*.size()')
              <> jsonb_path_query_array(OLD.acknowledgements, '$.*.size()')) THEN
        RAISE EXCEPTION 'the acknowledgements of checkpoint % cannot change', OLD.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoints_acknowledgements_guard BEFORE INSERT OR UPDATE OF acknowledgements ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_acknowledgements_guard();

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
