-- The store as it is now. Illegal rows and transitions are refused here, by the database itself; the rules behind the
-- constraints are the invariants of iteration_lib/protocol (I1 to I21). ARCHITECTURE.md says what is not asked here.

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
    deleted_by           text,
    deleted_at           timestamptz,
    defined_under        bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX runs_run_key_key ON runs (run_key) WHERE status <> 'DELETED';

COMMENT ON TABLE runs IS 'One execution of an iteration; its row is locked first by every transaction that changes it.';

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

-- A run's token, its durable epochs and its checkpoint ids only grow (I1, I6, I7). In every guard a condition that reads
-- another table stands alone: the server evaluates it as a query, whatever comes before AND.
CREATE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER runs_guard BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION runs_guard();

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
CREATE TRIGGER runs_row_guard BEFORE INSERT OR UPDATE OF
    run_id, run_key, reference, max_buckets, max_epochs, created_at, status, fencing_token, attempt_id, aborted_through,
    terminated_by, failure, outputs, state_digest, finished_at, deleted_by, deleted_at ON runs
    FOR EACH ROW EXECUTE FUNCTION runs_row_guard();

-- A run begins with nothing behind it; only a branch begins behind an epoch, that of its origin's checkpoint, and its row
-- follows in the same transaction.
CREATE FUNCTION runs_start_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % begins as one that was driven', NEW.run_id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER runs_start_guard BEFORE INSERT ON runs FOR EACH ROW
    WHEN ((NEW.status, NEW.revision, NEW.fencing_token, NEW.last_checkpoint_id, NEW.aborted_through, NEW.defined_under)
              IS DISTINCT FROM ('RUNNING', 0, 0, 0, 0, 0)
          OR num_nonnulls(NEW.attempt_id, NEW.terminated_by, NEW.failure, NEW.outputs, NEW.state_digest,
              NEW.finished_at, NEW.deleted_by, NEW.deleted_at) > 0)
    EXECUTE FUNCTION runs_start_guard();

CREATE FUNCTION runs_branch_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id
                   AND branches.epoch = NEW.last_durable_epoch) THEN
        RAISE EXCEPTION 'run % begins behind epoch % and is no branch', NEW.run_id, NEW.last_durable_epoch
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runs_branch_guard AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.last_durable_epoch >= 0) EXECUTE FUNCTION runs_branch_guard();

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
    checkpoint_failures  bigint NOT NULL DEFAULT 0,
    definition_changes   text[],
    failed_operator_id   text,
    failed_epoch         bigint,
    ignores_edges        boolean NOT NULL DEFAULT false,
    CONSTRAINT attempts_pkey PRIMARY KEY (run_id, fencing_token),
    CONSTRAINT attempts_attempt_id_key UNIQUE (attempt_id),
    CONSTRAINT attempts_fencing_token_check CHECK (fencing_token >= 1),
    CONSTRAINT attempts_outcome_check CHECK (outcome IN ('RELEASED', 'FINISHED', 'FAILED', 'SUPERSEDED')),
    CONSTRAINT attempts_checkpoint_failures_check CHECK (checkpoint_failures >= 0),
    CONSTRAINT attempts_ended_check CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT attempts_failed_check CHECK (
        (failed_operator_id IS NULL) = (failed_epoch IS NULL) AND (failed_epoch IS NULL OR failed_epoch >= -1)
        AND (failed_operator_id IS NULL OR outcome IS NOT DISTINCT FROM 'FAILED')
    )
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX attempts_live_key ON attempts (run_id) WHERE ended_at IS NULL;

COMMENT ON TABLE attempts IS 'One process that drives, or drove, a run; at most one of a run is live (I1).';

-- An attempt holds the token in force when it begins; one that has ended never comes back, and none changes whose it is (I1).
CREATE FUNCTION attempts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER attempts_guard BEFORE INSERT OR UPDATE ON attempts FOR EACH ROW EXECUTE FUNCTION attempts_guard();

-- How many checkpoints have failed in a row is counted as they end, never told (I13).
CREATE FUNCTION attempts_count_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the failed checkpoints of attempt % are counted, not told', NEW.fencing_token
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER attempts_count_guard BEFORE UPDATE OF checkpoint_failures ON attempts FOR EACH ROW
    WHEN (NEW.checkpoint_failures <> OLD.checkpoint_failures AND pg_trigger_depth() = 0)
    EXECUTE FUNCTION attempts_count_guard();

-- An attempt that has failed says why. What failed may be a listener as well as an operator: no foreign key says which.
CREATE FUNCTION attempts_failed_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attempt % of run % has failed and does not say why', NEW.fencing_token, NEW.run_id
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER attempts_failed_guard BEFORE UPDATE OF outcome, reason ON attempts FOR EACH ROW
    WHEN (NEW.outcome = 'FAILED' AND coalesce(NEW.reason, '') = '') EXECUTE FUNCTION attempts_failed_guard();

-- An attempt begins where the run goes on, under the token that was issued for it, and once nothing is left of another
-- one (I1, I2); it ends with what it has pending, and its run fails or finishes with it. Asked at the end of a
-- transaction, whose steps only together are legal.
CREATE FUNCTION runs_token_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                   AND attempts.fencing_token = NEW.fencing_token) THEN
        RAISE EXCEPTION 'no attempt of run % has begun under token %', NEW.run_id, NEW.fencing_token
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER runs_token_guard AFTER UPDATE OF fencing_token ON runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.fencing_token <> OLD.fencing_token) EXECUTE FUNCTION runs_token_guard();

CREATE FUNCTION attempts_begun_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE CONSTRAINT TRIGGER attempts_begun_guard AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION attempts_begun_guard();

CREATE FUNCTION attempts_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id AND checkpoints.status = 'PENDING'
               AND checkpoints.fencing_token = NEW.fencing_token) THEN
        RAISE EXCEPTION 'attempt % of run % has ended, and leaves a checkpoint pending', NEW.fencing_token, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.outcome IN ('FAILED', 'FINISHED') THEN
        IF EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND CASE NEW.outcome
                       WHEN 'FINISHED' THEN runs.status NOT IN ('FINISHED', 'DELETED')
                       ELSE runs.status IN ('RUNNING', 'TERMINATING') AND runs.fencing_token = NEW.fencing_token
                   END) THEN
            RAISE EXCEPTION 'attempt % of run % has %, and its run has not', NEW.fencing_token, NEW.run_id, NEW.outcome
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER attempts_end_guard AFTER UPDATE OF ended_at ON attempts DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION attempts_end_guard();

-- What a run's driver writes is written under the token of a live attempt (I2); by its name the last guard that is asked.
-- The guards of epochs and checkpoints ask for it themselves.
CREATE FUNCTION writer_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
                   AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL) THEN
        RAISE EXCEPTION 'nobody drives run % under token %, who would write %', NEW.run_id, NEW.fencing_token,
            TG_ARGV[0] USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

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
    added_under     bigint NOT NULL DEFAULT 0,
    CONSTRAINT operators_pkey PRIMARY KEY (run_id, operator_id),
    CONSTRAINT operators_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT operators_role_check CHECK (role IN ('data', 'variable', 'operator')),
    CONSTRAINT operators_kind_check CHECK (kind IN ('data', 'value', 'buckets', 'frame')),
    CONSTRAINT operators_finished_check CHECK (
        num_nulls(finished_epoch, fencing_token, output, finished_at) IN (0, 4)
    )
);

COMMENT ON TABLE operators IS 'The operators of a run; one that finished for good names the files of its output (I11).';

-- An operator is itself by its id, and by the token under which it was added; what it left when it finished stays. It
-- finishes for good where the run's definition says so, in the epoch after the last durable one, and behind all that it
-- takes (I11).
CREATE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER operators_guard BEFORE INSERT OR UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION operators_guard();
CREATE TRIGGER operators_writer_guard BEFORE UPDATE ON operators FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION writer_guard('an operator''s marker');

-- Which operators a run has changes only under a live attempt that says what changed, once, before it opens an epoch; those
-- of a deleted run may be cleared away with all that is left of it.
CREATE FUNCTION definition_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER runs_definition_guard BEFORE UPDATE OF definition, defined_under ON runs
    FOR EACH ROW EXECUTE FUNCTION definition_guard();
CREATE TRIGGER operators_definition_guard BEFORE UPDATE OF position, name, role, kind OR DELETE ON operators
    FOR EACH ROW EXECUTE FUNCTION definition_guard();
CREATE TRIGGER operators_insert_guard BEFORE INSERT ON operators FOR EACH ROW
    WHEN (NEW.added_under > 0) EXECUTE FUNCTION definition_guard();

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
CREATE TRIGGER pins_writer_guard BEFORE INSERT ON pins FOR EACH ROW EXECUTE FUNCTION writer_guard('a pin');

COMMENT ON TABLE pins IS 'What each data stream of a run reads, fixed when the run started.';

CREATE TABLE epochs (
    run_id            uuid NOT NULL,
    epoch             bigint NOT NULL,
    fencing_token     bigint NOT NULL,
    status            text NOT NULL DEFAULT 'OPEN',
    expected_reports  integer NOT NULL,
    reports           integer NOT NULL,
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
    CONSTRAINT epochs_pkey PRIMARY KEY (run_id, epoch, fencing_token),
    CONSTRAINT epochs_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts
) WITH (fillfactor = 70);
-- An epoch exists once, whatever was voided before (I3), and at most one of a run is open.
CREATE UNIQUE INDEX epochs_epoch_key ON epochs (run_id, epoch) WHERE status <> 'VOIDED';
CREATE UNIQUE INDEX epochs_open_key ON epochs (run_id) WHERE status = 'OPEN';
-- With epochs_open_key, so that those that are not durable are found however many are.
CREATE INDEX epochs_aligned_idx ON epochs (run_id, epoch) WHERE status = 'ALIGNED';

COMMENT ON TABLE epochs IS 'One pass of a run under one token: OPEN, ALIGNED, DURABLE, or VOIDED when superseded.';

-- An epoch begins as one that is open and not held, behind one that is durable, or aligned by the same attempt, and does
-- not end the run (I3, I9); what an attempt leaves is void before another one goes on, and not while it is live (I2). No
-- attempt opens one after another while a person asks the run to stop (I20), or after more checkpoints have failed than it
-- puts up with (I13). None aligns while as many are pending as its policy allows (I14). What it was decided from is what was
-- reported, and by the rule that holds then; it stays (I5). Only a completed checkpoint makes it durable (I6), and who drives
-- the run alone writes it (I2).
-- What the run, its attempts, checkpoints, stops and other epochs say of one that opens or aligns is asked in one query,
-- which takes as long as many conditions on the row itself.
CREATE FUNCTION epochs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER epochs_guard BEFORE INSERT OR UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION epochs_guard();

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

CREATE TABLE checkpoints (
    run_id           uuid NOT NULL,
    checkpoint_id    bigint NOT NULL,
    epoch            bigint NOT NULL,
    fencing_token    bigint NOT NULL,
    kind             text NOT NULL,
    status           text NOT NULL DEFAULT 'PENDING',
    expected         integer NOT NULL,
    acknowledged     integer NOT NULL,
    manifest_path    text,
    manifest_sha256  text,
    size_bytes       bigint,
    reason           text,
    triggered_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at         timestamptz,
    failure          text,
    acknowledgements jsonb NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (run_id, checkpoint_id),
    CONSTRAINT checkpoints_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX checkpoints_completed_key ON checkpoints (run_id) WHERE status = 'COMPLETED';
CREATE INDEX checkpoints_pending_idx ON checkpoints (run_id, checkpoint_id) WHERE status = 'PENDING';
CREATE INDEX checkpoints_retained_idx ON checkpoints (run_id, checkpoint_id)
    WHERE status IN ('COMPLETED', 'SUBSUMED');
CREATE UNIQUE INDEX checkpoints_epoch_key ON checkpoints (epoch, run_id, fencing_token) WHERE status <> 'ABORTED';

COMMENT ON TABLE checkpoints IS 'Pending, completed, aborted, subsumed, discarded; at most one of a run is COMPLETED (I8).';

CREATE FUNCTION checkpoints_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER checkpoints_guard BEFORE INSERT OR UPDATE ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_guard();

-- A checkpoint is triggered once its epoch, the last one, has aligned, under the id that was issued last (I7), by who drives
-- the run (I2), and none after more of his have failed than he puts up with (I13); that of the epoch which ends the run is the
-- final one, and what a person asked for is made by hand. What a person aborted before it began begins as aborted (I17). As
-- many as may be pending were not when its epoch aligned (I14), and none has begun since.
CREATE FUNCTION checkpoints_issue_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER checkpoints_issue_guard BEFORE INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION checkpoints_issue_guard();

-- What is asked at the end of a transaction, whose steps only together are legal: what is completed covers the last
-- durable epoch (I6), which became durable by it, leaves no older one pending but those made by hand (I8), lets the origin
-- of a branch go (I18), and the final one ends the run; what is subsumed is so by a newer one that is completed (I8); what
-- has ended holds no epoch any more (I14). What is aborted was so by what has happened: else a failure would hide behind it
-- (I13).
CREATE FUNCTION checkpoints_end_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE CONSTRAINT TRIGGER checkpoints_end_guard AFTER UPDATE OF status ON checkpoints
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION checkpoints_end_guard();
CREATE CONSTRAINT TRIGGER checkpoints_unbegun_guard AFTER INSERT ON checkpoints DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.status = 'ABORTED') EXECUTE FUNCTION checkpoints_end_guard();

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

-- A checkpoint completes, or fails, while its attempt is live (I2), which counts those that fail in a row, and begins anew when
-- one completes, unless they were too many; of one that is final or made by hand none is tolerable (I13).
CREATE FUNCTION checkpoints_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    attempt record;
BEGIN
    IF OLD.status <> 'PENDING' OR NEW.status NOT IN ('COMPLETED', 'SUBSUMED')
       AND (NEW.failure IS NULL OR NEW.failure NOT IN ('DECLINED', 'EXPIRED')) THEN
        RETURN NULL;
    END IF;
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
CREATE TRIGGER checkpoints_count AFTER UPDATE OF status ON checkpoints FOR EACH ROW EXECUTE FUNCTION checkpoints_count();

CREATE TABLE checkpoint_requests (
    request_id     uuid PRIMARY KEY,
    run_id         uuid NOT NULL REFERENCES runs,
    requested_by   text NOT NULL,
    requested_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    checkpoint_id  bigint,
    behind         bigint NOT NULL DEFAULT 0,
    CONSTRAINT checkpoint_requests_checkpoint_fkey FOREIGN KEY (run_id, checkpoint_id) REFERENCES checkpoints
);
CREATE INDEX checkpoint_requests_answer_idx ON checkpoint_requests (run_id, checkpoint_id);

COMMENT ON TABLE checkpoint_requests IS
    'Who asked for a checkpoint by hand, behind which one, and which one answered; NULL until one has begun.';

-- A request is who asked what when of one run that goes on; it is answered once, by the next checkpoint made by hand, or by
-- the one that ends the run, where that had begun already, once it is completed.
CREATE FUNCTION checkpoint_requests_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER checkpoint_requests_guard BEFORE INSERT OR UPDATE ON checkpoint_requests
    FOR EACH ROW EXECUTE FUNCTION checkpoint_requests_guard();

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

CREATE TABLE stops (
    stop_id       uuid PRIMARY KEY,
    run_id        uuid NOT NULL REFERENCES runs,
    kind          text NOT NULL,
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at    timestamptz,
    resumed_by    text,
    resumed_at    timestamptz,
    CONSTRAINT stops_kind_check CHECK (kind IN ('STOP', 'DRAIN')),
    CONSTRAINT stops_stopped_check CHECK (stopped_at IS NULL OR kind = 'STOP'),
    CONSTRAINT stops_resumed_check CHECK (
        (resumed_by IS NULL) = (resumed_at IS NULL) AND (resumed_at IS NULL OR stopped_at IS NOT NULL)
    )
);
-- Of a run's requests at most one is in force (I20).
CREATE UNIQUE INDEX stops_in_force_key ON stops (run_id) WHERE resumed_at IS NULL;
CREATE INDEX stops_run_idx ON stops (run_id, resumed_at);

COMMENT ON TABLE stops IS 'Who asked a run to stop or to drain, when it stopped, and who let it go on (I20).';

-- A request is who asked what of one run that goes on; it is answered once, by a run that is STOPPED, and resumed once.
CREATE FUNCTION stops_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.stopped_at IS NOT NULL OR NOT EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id
               AND runs.status = 'RUNNING') THEN
            RAISE EXCEPTION 'run % does not go on and cannot stop', NEW.run_id USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.stop_id, NEW.run_id, NEW.kind, NEW.requested_by, NEW.requested_at)
       IS DISTINCT FROM (OLD.stop_id, OLD.run_id, OLD.kind, OLD.requested_by, OLD.requested_at) THEN
        RAISE EXCEPTION 'the identity of stop % cannot change', OLD.stop_id USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.stopped_at IS NOT NULL AND NEW.stopped_at IS DISTINCT FROM OLD.stopped_at
       OR OLD.resumed_at IS NOT NULL AND (NEW.resumed_by, NEW.resumed_at)
          IS DISTINCT FROM (OLD.resumed_by, OLD.resumed_at) THEN
        RAISE EXCEPTION 'stop % is answered', OLD.stop_id USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status = 'STOPPED') THEN
        RAISE EXCEPTION 'run % is not stopped', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER stops_guard BEFORE INSERT OR UPDATE ON stops FOR EACH ROW EXECUTE FUNCTION stops_guard();

-- A run is STOPPED exactly while a request that it has answered is in force, and does not go on undriven while a person
-- asks it to stop (I20); asked at the end of a transaction, of whatever may have broken it.
CREATE FUNCTION stopped_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
BEGIN
    SELECT runs.status, stops.stopped_at IS NOT NULL AS is_answered, stops.kind = 'STOP' AND NOT EXISTS (
        SELECT FROM attempts WHERE attempts.run_id = NEW.run_id AND attempts.ended_at IS NULL) AS must_stop
    INTO run FROM runs LEFT JOIN stops ON stops.run_id = runs.run_id AND stops.resumed_at IS NULL
    WHERE runs.run_id = NEW.run_id;
    IF (run.status = 'STOPPED') <> run.is_answered AND run.status <> 'DELETED'
       OR run.status = 'RUNNING' AND run.must_stop THEN
        RAISE EXCEPTION 'run % is %, and is not what a person asked for', NEW.run_id, run.status
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER stops_stopped_guard AFTER INSERT OR UPDATE ON stops DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION stopped_guard();
CREATE CONSTRAINT TRIGGER runs_stopped_guard AFTER UPDATE OF status ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NEW.status IN ('RUNNING', 'STOPPED')) EXECUTE FUNCTION stopped_guard();
CREATE CONSTRAINT TRIGGER attempts_stopped_guard AFTER UPDATE OF ended_at ON attempts DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION stopped_guard();

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

-- A bucket of an operator that the run has is marked once: of one that finishes for good under -1, else by the attempt whose
-- epoch comes after the last durable one, has switched to unaligned and is not durable; and after all that it was computed
-- from, the same buckets of it where both are on buckets, else all (I15). In what order operators are computed is what the
-- run's definition says: data is always there, a variable's value before epoch 0 is computed, later ones are durable.
CREATE FUNCTION edge_parts_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER edge_parts_guard BEFORE INSERT ON edge_parts FOR EACH ROW EXECUTE FUNCTION edge_parts_guard();
CREATE TRIGGER edge_parts_writer_guard BEFORE INSERT ON edge_parts
    FOR EACH ROW EXECUTE FUNCTION writer_guard('an edge');

-- A part that somebody would find is voided by an attempt that has opened no epoch and says why: it ignores edges, but for
-- what has finished for good, or has other operators; or it falls back behind the part's epoch. One that takes over else
-- keeps every part (I15).
CREATE FUNCTION edge_parts_void_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER edge_parts_void_guard BEFORE UPDATE ON edge_parts
    FOR EACH ROW EXECUTE FUNCTION edge_parts_void_guard();

-- An attempt that ignores edges leaves none, when it has begun, nor a part of what has not finished for good (I15).
CREATE FUNCTION attempts_ignore_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE CONSTRAINT TRIGGER attempts_ignore_guard AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.ignores_edges) EXECUTE FUNCTION attempts_ignore_guard();

CREATE TABLE listener_notices (
    run_id         uuid NOT NULL,
    listener_id    text NOT NULL,
    epoch          bigint NOT NULL,
    fencing_token  bigint NOT NULL,
    effect         jsonb,
    noticed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_final       boolean NOT NULL DEFAULT false,
    CONSTRAINT listener_notices_pkey PRIMARY KEY (run_id, listener_id, epoch),
    CONSTRAINT listener_notices_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT listener_notices_epoch_check CHECK (epoch >= 0)
);

COMMENT ON TABLE listener_notices IS 'Which durable epochs a listener has heard of, and what it returned (I16).';

-- A listener hears of durable epochs, of each in turn, or of the end alone, when the run terminates (I16).
CREATE FUNCTION listener_notices_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER listener_notices_guard BEFORE INSERT ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION listener_notices_guard();
CREATE TRIGGER listener_notices_writer_guard BEFORE INSERT ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION writer_guard('a notice');
CREATE TRIGGER listener_notices_change_guard BEFORE UPDATE ON listener_notices
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('a notice');

CREATE TABLE committables (
    run_id         uuid NOT NULL,
    epoch          bigint NOT NULL,
    output         text NOT NULL,
    fencing_token  bigint NOT NULL,
    target         text NOT NULL,
    content        jsonb NOT NULL,
    stored_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at   timestamptz,
    CONSTRAINT committables_pkey PRIMARY KEY (run_id, epoch, output),
    CONSTRAINT committables_epoch_fkey FOREIGN KEY (run_id, epoch, fencing_token) REFERENCES epochs,
    CONSTRAINT committables_output_check CHECK (output <> ''),
    CONSTRAINT committables_content_check CHECK (jsonb_typeof(content) = 'object')
);
CREATE INDEX committables_uncommitted_idx ON committables (run_id) WHERE committed_at IS NULL;

COMMENT ON TABLE committables IS
    'What a sink prepared of an output in a durable epoch: a row is the decision to commit it, once (I19).';

-- It is stored when its epoch is durable, and changes once, when the sink shows it (I19).
CREATE FUNCTION committables_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    publishes boolean;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.committed_at IS NOT NULL OR to_jsonb(NEW) - 'committed_at' <> to_jsonb(OLD) - 'committed_at' THEN
            RAISE EXCEPTION 'what was prepared of % in epoch % is committed once, as it is', OLD.output, OLD.epoch
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    SELECT CAST(runs.definition -> 'sinks' ->> NEW.output AS boolean) OR epochs.decision ->> 'terminated_by' IS NOT NULL
    INTO publishes FROM epochs JOIN runs USING (run_id)
    WHERE epochs.run_id = NEW.run_id AND epochs.epoch = NEW.epoch AND epochs.fencing_token = NEW.fencing_token
        AND epochs.status = 'DURABLE' AND runs.definition -> 'sinks' ? NEW.output;
    IF publishes IS NOT TRUE THEN
        RAISE EXCEPTION 'epoch % is not durable, or publishes no %', NEW.epoch, NEW.output
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER committables_guard BEFORE INSERT OR UPDATE ON committables
    FOR EACH ROW EXECUTE FUNCTION committables_guard();
CREATE TRIGGER committables_writer_guard BEFORE INSERT ON committables
    FOR EACH ROW EXECUTE FUNCTION writer_guard('a committable');

-- All that epochs publish is stored in the step that makes them durable (I19); asked at the end of a transaction, of a
-- run that has sinks.
CREATE FUNCTION runs_published_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE CONSTRAINT TRIGGER runs_published_guard AFTER UPDATE OF last_durable_epoch ON runs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.last_durable_epoch > OLD.last_durable_epoch AND NEW.definition -> 'sinks' <> '{}')
    EXECUTE FUNCTION runs_published_guard();

CREATE TABLE fallbacks (
    run_id              uuid NOT NULL,
    fencing_token       bigint NOT NULL,
    from_checkpoint_id  bigint NOT NULL,
    to_checkpoint_id    bigint NOT NULL,
    epoch               bigint NOT NULL,
    reason              text NOT NULL,
    fell_back_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT fallbacks_pkey PRIMARY KEY (run_id, fencing_token),
    CONSTRAINT fallbacks_attempt_fkey FOREIGN KEY (run_id, fencing_token) REFERENCES attempts,
    CONSTRAINT fallbacks_older_check CHECK (to_checkpoint_id < from_checkpoint_id)
);

COMMENT ON TABLE fallbacks IS 'When a run went on from an older checkpoint, because its newest one was broken (I21).';

-- Nobody has had anything of what is given up, no epoch has been opened since, and the run goes on (I21).
CREATE FUNCTION fallbacks_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.status = 'RUNNING')
       OR NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id AND checkpoints.status = 'SUBSUMED'
               AND (checkpoints.checkpoint_id, checkpoints.epoch) = (NEW.to_checkpoint_id, NEW.epoch))
       OR NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
               AND checkpoints.status = 'COMPLETED' AND checkpoints.checkpoint_id = NEW.from_checkpoint_id)
       OR NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = NEW.run_id
               AND attempts.fencing_token = NEW.fencing_token AND attempts.ended_at IS NULL)
       OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.status = 'OPEN')
       OR EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.status = 'ALIGNED')
       OR EXISTS (SELECT FROM listener_notices WHERE listener_notices.run_id = NEW.run_id
               AND listener_notices.epoch > NEW.epoch)
       OR EXISTS (SELECT FROM committables WHERE committables.run_id = NEW.run_id
               AND committables.epoch > NEW.epoch) THEN
        RAISE EXCEPTION 'run % cannot fall back to checkpoint %', NEW.run_id, NEW.to_checkpoint_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fallbacks_guard BEFORE INSERT ON fallbacks FOR EACH ROW EXECUTE FUNCTION fallbacks_guard();
CREATE TRIGGER fallbacks_change_guard BEFORE UPDATE ON fallbacks
    FOR EACH ROW EXECUTE FUNCTION unchangeable_guard('a fallback');

-- All that a fallback gives up goes in that step, in which nobody hears of it, and the older checkpoint is the completed
-- one again (I6, I21); asked at the end of a transaction.
CREATE FUNCTION fallbacks_whole_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id AND epochs.epoch > NEW.epoch
               AND epochs.fencing_token < NEW.fencing_token AND epochs.status = 'DURABLE')
       OR EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
               AND checkpoints.checkpoint_id > NEW.to_checkpoint_id
               AND checkpoints.checkpoint_id <= NEW.from_checkpoint_id
               AND checkpoints.status IN ('COMPLETED', 'SUBSUMED'))
       OR NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id
               AND checkpoints.checkpoint_id >= NEW.to_checkpoint_id AND checkpoints.status = 'COMPLETED')
       OR EXISTS (SELECT FROM listener_notices JOIN runs USING (run_id) WHERE listener_notices.run_id = NEW.run_id
               AND listener_notices.epoch > runs.last_durable_epoch) THEN
        RAISE EXCEPTION 'run % falls back to checkpoint %, and not all after it is given up, or somebody has heard of it',
            NEW.run_id, NEW.to_checkpoint_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fallbacks_whole_guard AFTER INSERT ON fallbacks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION fallbacks_whole_guard();

CREATE TABLE branches (
    run_id                uuid PRIMARY KEY REFERENCES runs,
    origin_run_id         uuid,
    origin_checkpoint_id  bigint,
    epoch                 bigint NOT NULL,
    uri                   text NOT NULL,
    manifest_path         text NOT NULL,
    manifest_sha256       text NOT NULL,
    mode                  text NOT NULL,
    keeps                 jsonb NOT NULL,
    branched_by           text NOT NULL,
    branched_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at           timestamptz,
    carries               jsonb,
    CONSTRAINT branches_origin_fkey FOREIGN KEY (origin_run_id, origin_checkpoint_id) REFERENCES checkpoints,
    CONSTRAINT branches_origin_check CHECK ((origin_run_id IS NULL) = (origin_checkpoint_id IS NULL)),
    CONSTRAINT branches_epoch_check CHECK (epoch >= 0),
    CONSTRAINT branches_manifest_sha256_check CHECK (manifest_sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT branches_mode_check CHECK (mode IN ('NO_CLAIM', 'CLAIM'))
);
CREATE INDEX branches_origin_idx ON branches (origin_run_id, origin_checkpoint_id);

COMMENT ON TABLE branches IS
    'Which checkpoint a run started from; it is pinned until the run has a completed one of its own (I18).';

-- A branch is begun by a run that nobody has driven, from a checkpoint that is there, and is released once (I18).
CREATE FUNCTION branches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.released_at IS NOT NULL OR to_jsonb(NEW) - 'released_at' <> to_jsonb(OLD) - 'released_at'
           OR NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = OLD.run_id
                          AND checkpoints.status = 'COMPLETED')
              AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status = 'DELETED') THEN
            RAISE EXCEPTION 'run % is released once, by a checkpoint of its own', OLD.run_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.released_at IS NOT NULL THEN
        RAISE EXCEPTION 'run % is released once, by a checkpoint of its own', NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM runs WHERE runs.run_id = NEW.run_id AND runs.fencing_token = 0
                   AND runs.last_durable_epoch = NEW.epoch) THEN
        RAISE EXCEPTION 'run % does not begin behind epoch %', NEW.run_id, NEW.epoch
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.origin_run_id IS NOT NULL THEN  -- the lock keeps it from being discarded until this is committed
        PERFORM FROM checkpoints WHERE checkpoints.run_id = NEW.origin_run_id
            AND checkpoints.checkpoint_id = NEW.origin_checkpoint_id AND checkpoints.epoch = NEW.epoch
            AND checkpoints.manifest_sha256 = NEW.manifest_sha256
            AND checkpoints.status IN ('COMPLETED', 'SUBSUMED') FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'checkpoint % of run % is not there', NEW.origin_checkpoint_id, NEW.origin_run_id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'branches_origin_gone', TABLE = 'branches';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER branches_guard BEFORE INSERT OR UPDATE ON branches FOR EACH ROW EXECUTE FUNCTION branches_guard();

CREATE TABLE checkpoint_pins (
    run_id        uuid NOT NULL,
    checkpoint_id bigint NOT NULL,
    pinned_by     text NOT NULL,
    pinned_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT checkpoint_pins_pkey PRIMARY KEY (run_id, checkpoint_id),
    CONSTRAINT checkpoint_pins_checkpoint_fkey FOREIGN KEY (run_id, checkpoint_id) REFERENCES checkpoints
);

COMMENT ON TABLE checkpoint_pins IS 'Which checkpoints persons keep, whatever the policy; a released one has no row (I18).';

CREATE FUNCTION checkpoint_pins_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'the pin of checkpoint % cannot change', OLD.checkpoint_id USING ERRCODE = 'check_violation';
    END IF;
    PERFORM FROM checkpoints WHERE checkpoints.run_id = NEW.run_id AND checkpoints.checkpoint_id = NEW.checkpoint_id
        AND checkpoints.status IN ('COMPLETED', 'SUBSUMED') FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'checkpoint % of run % is not there', NEW.checkpoint_id, NEW.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER checkpoint_pins_guard BEFORE INSERT OR UPDATE ON checkpoint_pins
    FOR EACH ROW EXECUTE FUNCTION checkpoint_pins_guard();

-- What was written of a run stays until the run is deleted; then whoever owns the tables may clear away its rows.
CREATE FUNCTION kept_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id AND runs.status <> 'DELETED') THEN
        RAISE EXCEPTION '% of run %, which is not deleted, cannot go', TG_TABLE_NAME, OLD.run_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER runs_kept_guard BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER attempts_kept_guard BEFORE DELETE ON attempts FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER pins_kept_guard BEFORE DELETE ON pins FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER epochs_kept_guard BEFORE DELETE ON epochs FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER checkpoints_kept_guard BEFORE DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER checkpoint_requests_kept_guard BEFORE DELETE ON checkpoint_requests FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER stops_kept_guard BEFORE DELETE ON stops FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER edge_parts_kept_guard BEFORE DELETE ON edge_parts FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER listener_notices_kept_guard BEFORE DELETE ON listener_notices FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER committables_kept_guard BEFORE DELETE ON committables FOR EACH ROW
    WHEN (OLD.committed_at IS NOT NULL) EXECUTE FUNCTION kept_guard();
CREATE TRIGGER fallbacks_kept_guard BEFORE DELETE ON fallbacks FOR EACH ROW EXECUTE FUNCTION kept_guard();
CREATE TRIGGER branches_kept_guard BEFORE DELETE ON branches FOR EACH ROW EXECUTE FUNCTION kept_guard();

-- Who owns the tables may give up what can never be committed, while nobody drives the run, which would commit it.
CREATE FUNCTION committables_given_up_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM attempts WHERE attempts.run_id = OLD.run_id AND attempts.ended_at IS NULL) THEN
        RAISE EXCEPTION 'run % is driven, and gives up nothing', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER committables_given_up_guard BEFORE DELETE ON committables FOR EACH ROW
    WHEN (OLD.committed_at IS NULL) EXECUTE FUNCTION committables_given_up_guard();

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

-- Who needs a checkpoint besides its own run, and whether it may go without anybody missing it.
CREATE VIEW checkpoint_needs AS
SELECT checkpoints.run_id, checkpoints.checkpoint_id, checkpoints.status, needed.by_branches,
    checkpoints.status IN ('ABORTED', 'DISCARDED')
        OR cardinality(needed.by_branches) = 0 AND checkpoint_pins.pinned_by IS NULL AND (
            checkpoints.status = 'SUBSUMED' OR checkpoints.status = 'COMPLETED' AND runs.status = 'DELETED'
        ) AS safe_to_delete,
    checkpoint_pins.pinned_by AS by_person
FROM checkpoints JOIN runs USING (run_id) LEFT JOIN checkpoint_pins USING (run_id, checkpoint_id)
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(branches.run_id ORDER BY branches.branched_at, branches.run_id), '{}') AS by_branches
    FROM branches
    WHERE branches.origin_run_id = checkpoints.run_id AND branches.origin_checkpoint_id = checkpoints.checkpoint_id
        AND branches.released_at IS NULL
) AS needed;

COMMENT ON VIEW checkpoint_needs IS
    'Per checkpoint: the branches and the person that pin it, and whether it is safe to delete (I18).';
