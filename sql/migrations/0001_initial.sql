-- The store's first version. Illegal rows and transitions are refused here, by the database itself; the rules behind
-- the constraints are the invariants of iteration_lib/protocol (I1 to I12).

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
    CONSTRAINT runs_run_key_key UNIQUE (run_key),
    CONSTRAINT runs_run_key_check CHECK (run_key <> ''),
    CONSTRAINT runs_max_buckets_check CHECK (max_buckets >= 1),
    CONSTRAINT runs_max_epochs_check CHECK (max_epochs >= 1),
    CONSTRAINT runs_status_check CHECK (status IN ('RUNNING', 'TERMINATING', 'FINISHED', 'FAILED')),
    CONSTRAINT runs_fencing_token_check CHECK (fencing_token >= 0),
    CONSTRAINT runs_last_durable_epoch_check CHECK (last_durable_epoch >= -1),
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
       OR NEW.last_checkpoint_id < OLD.last_checkpoint_id OR NEW.revision < OLD.revision THEN
        RAISE EXCEPTION 'run %: tokens, durable epochs and checkpoint ids only grow', OLD.run_id
            USING ERRCODE = 'check_violation';
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
    RETURN NEW;
END $$;
CREATE TRIGGER runs_guard BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION runs_guard();

-- What is written once; on its columns alone, so that the updates of every epoch do not compare them.
CREATE FUNCTION unchangeable_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of run % cannot change', TG_ARGV[0], OLD.run_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER runs_request_guard BEFORE UPDATE OF definition, params, state_uri, max_epochs ON runs
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('the request');

CREATE TABLE attempts (
    run_id             uuid NOT NULL REFERENCES runs,
    fencing_token      bigint NOT NULL,
    attempt_id         uuid NOT NULL,
    holder             jsonb NOT NULL,
    started_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_expires_at   timestamptz NOT NULL,
    ended_at           timestamptz,
    outcome            text,
    reason             text,
    CONSTRAINT attempts_pkey PRIMARY KEY (run_id, fencing_token),
    CONSTRAINT attempts_attempt_id_key UNIQUE (attempt_id),
    CONSTRAINT attempts_fencing_token_check CHECK (fencing_token >= 1),
    CONSTRAINT attempts_outcome_check CHECK (outcome IN ('RELEASED', 'FINISHED', 'FAILED', 'SUPERSEDED')),
    CONSTRAINT attempts_ended_check CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX attempts_live_key ON attempts (run_id) WHERE ended_at IS NULL;

COMMENT ON TABLE attempts IS 'One process that drives, or drove, a run; at most one of a run is live (I1).';

-- An attempt that has ended never comes back, and none changes whose it is (I1).
CREATE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.fencing_token, NEW.attempt_id, NEW.holder, NEW.started_at)
       IS DISTINCT FROM (OLD.run_id, OLD.fencing_token, OLD.attempt_id, OLD.holder, OLD.started_at) THEN
        RAISE EXCEPTION 'the identity of attempt % cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.ended_at IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % has ended and cannot change', OLD.fencing_token USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER attempts_guard BEFORE UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION attempts_guard();

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

CREATE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.operator_id, NEW.position, NEW.name, NEW.role, NEW.kind)
       IS DISTINCT FROM (OLD.run_id, OLD.operator_id, OLD.position, OLD.name, OLD.role, OLD.kind) THEN
        RAISE EXCEPTION 'the identity of operator % cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.finished_at IS NOT NULL THEN
        RAISE EXCEPTION 'operator % has finished and cannot change', OLD.operator_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER operators_guard BEFORE UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION operators_guard();

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
    expected_reports  integer NOT NULL,
    reports           integer NOT NULL DEFAULT 0,
    decision          jsonb,
    metrics           jsonb NOT NULL DEFAULT '{}',
    seconds           double precision,
    opened_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    aligned_at        timestamptz,
    durable_at        timestamptz,
    CONSTRAINT epochs_pkey PRIMARY KEY (run_id, epoch, fencing_token),
    CONSTRAINT epochs_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT epochs_epoch_check CHECK (epoch >= 0),
    CONSTRAINT epochs_status_check CHECK (status IN ('OPEN', 'ALIGNED', 'DURABLE', 'VOIDED')),
    CONSTRAINT epochs_reports_check CHECK (reports BETWEEN 0 AND expected_reports AND expected_reports >= 1),
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

COMMENT ON TABLE epochs IS 'One pass of a run under one token: OPEN, ALIGNED, DURABLE, or VOIDED when superseded.';

CREATE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.epoch, NEW.fencing_token, NEW.expected_reports)
       IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token, OLD.expected_reports) THEN
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
    RETURN NEW;
END $$;
CREATE TRIGGER epochs_guard BEFORE UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION epochs_guard();

CREATE TABLE head_reports (
    run_id         uuid NOT NULL,
    epoch          bigint NOT NULL,
    fencing_token  bigint NOT NULL,
    head           text NOT NULL,
    records        bigint[] NOT NULL,
    CONSTRAINT head_reports_pkey PRIMARY KEY (run_id, epoch, fencing_token, head),
    CONSTRAINT head_reports_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs,
    CONSTRAINT head_reports_records_check CHECK (cardinality(records) >= 1 AND (0 <= ALL (records)) IS NOT FALSE)
);

COMMENT ON TABLE head_reports IS
    'What each subtask of a head fed back in an epoch, by subtask index; NULL until it has reported (I4).';

CREATE TABLE checkpoints (
    run_id           uuid NOT NULL,
    checkpoint_id    bigint NOT NULL,
    epoch            bigint NOT NULL,
    fencing_token    bigint NOT NULL,
    kind             text NOT NULL,
    status           text NOT NULL DEFAULT 'PENDING',
    expected         integer NOT NULL,
    acknowledged     integer NOT NULL DEFAULT 0,
    manifest_path    text,
    manifest_sha256  text,
    size_bytes       bigint,
    reason           text,
    triggered_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at         timestamptz,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (run_id, checkpoint_id),
    CONSTRAINT checkpoints_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs,
    CONSTRAINT checkpoints_checkpoint_id_check CHECK (checkpoint_id >= 1),
    CONSTRAINT checkpoints_kind_check CHECK (kind IN ('PERIODIC', 'FINAL')),
    CONSTRAINT checkpoints_status_check CHECK (
        status IN ('PENDING', 'COMPLETED', 'ABORTED', 'SUBSUMED', 'DISCARDED')
    ),
    CONSTRAINT checkpoints_acknowledged_check CHECK (acknowledged BETWEEN 0 AND expected AND expected >= 1),
    CONSTRAINT checkpoints_completed_check CHECK (
        status IN ('PENDING', 'ABORTED')
        OR (acknowledged = expected AND manifest_path IS NOT NULL AND size_bytes IS NOT NULL)
    ),
    CONSTRAINT checkpoints_manifest_check CHECK (
        (manifest_path IS NULL) = (manifest_sha256 IS NULL) AND manifest_sha256 ~ '^[0-9a-f]{64}$'
    ),
    CONSTRAINT checkpoints_aborted_check CHECK ((status = 'ABORTED') = (reason IS NOT NULL)),
    CONSTRAINT checkpoints_ended_check CHECK ((status = 'PENDING') = (ended_at IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX checkpoints_completed_key ON checkpoints (run_id) WHERE status = 'COMPLETED';
CREATE INDEX checkpoints_pending_idx ON checkpoints (run_id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX checkpoints_epoch_key ON checkpoints (run_id, epoch, fencing_token)
    WHERE status <> 'ABORTED';

COMMENT ON TABLE checkpoints IS 'Pending, completed, aborted, subsumed, discarded; at most one of a run is COMPLETED (I8).';

CREATE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run_id, NEW.checkpoint_id, NEW.epoch, NEW.fencing_token, NEW.kind, NEW.expected)
       IS DISTINCT FROM (OLD.run_id, OLD.checkpoint_id, OLD.epoch, OLD.fencing_token, OLD.kind, OLD.expected) THEN
        RAISE EXCEPTION 'the identity of checkpoint % cannot change', OLD.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('PENDING', 'COMPLETED'), ('PENDING', 'ABORTED'), ('COMPLETED', 'SUBSUMED'), ('SUBSUMED', 'DISCARDED')) THEN
        RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.manifest_sha256 IS NOT NULL AND (NEW.manifest_path, NEW.manifest_sha256)
       IS DISTINCT FROM (OLD.manifest_path, OLD.manifest_sha256) THEN
        RAISE EXCEPTION 'the manifest of checkpoint % cannot change', OLD.checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoints_guard BEFORE UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION checkpoints_guard();

CREATE TABLE acknowledgements (
    run_id         uuid NOT NULL,
    checkpoint_id  bigint NOT NULL,
    participant    text NOT NULL,
    subtasks       bigint[] NOT NULL,
    CONSTRAINT acknowledgements_pkey PRIMARY KEY (run_id, checkpoint_id, participant),
    CONSTRAINT acknowledgements_checkpoint_fkey FOREIGN KEY (run_id, checkpoint_id) REFERENCES checkpoints,
    CONSTRAINT acknowledgements_subtasks_check CHECK (cardinality(subtasks) >= 1)
);

COMMENT ON TABLE acknowledgements IS
    'Which subtasks of a participant have acknowledged a checkpoint, by subtask index: 1, or NULL for not yet.';
