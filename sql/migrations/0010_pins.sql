-- The tenth version: a person may keep a checkpoint, whatever the policy lets go, and releases it; a branch says of what
-- it carries the values on (NULL where an older version made it: of all that its checkpoint holds); an attempt that has
-- failed says why; no operator is added in the middle of an epoch.

ALTER TABLE branches ADD COLUMN carries jsonb;

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
               OR OLD.status = 'COMPLETED' AND NOT EXISTS (SELECT FROM runs WHERE runs.run_id = OLD.run_id
                       AND runs.status = 'DELETED')
                   AND NOT EXISTS (SELECT FROM fallbacks JOIN runs USING (run_id, fencing_token)
                       WHERE fallbacks.run_id = OLD.run_id
                       AND fallbacks.from_checkpoint_id = OLD.checkpoint_id) THEN
                RAISE EXCEPTION 'checkpoint % of run % is needed', OLD.checkpoint_id, OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
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
            OR length(NEW.manifest_sha256) <> 64 OR translate(NEW.manifest_sha256, '0123456789abcdef', '') <> ''
            THEN 'checkpoints_manifest_check'
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

-- A branch holds its origin when it begins; one that was released from the start would pin nothing.
CREATE OR REPLACE FUNCTION branches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- Who needs a checkpoint besides its own run, and whether it may go without anybody missing it.
CREATE OR REPLACE VIEW checkpoint_needs AS
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

-- An attempt that has failed says why; it may do so by a listener, too, so that no table lists what it may name.
CREATE FUNCTION attempts_failed_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attempt % of run % has failed and does not say why', NEW.fencing_token, NEW.run_id
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER attempts_failed_guard BEFORE INSERT OR UPDATE OF outcome, reason ON attempts FOR EACH ROW
    WHEN (NEW.outcome = 'FAILED' AND coalesce(NEW.reason, '') = '') EXECUTE FUNCTION attempts_failed_guard();

-- Which operators a run has changes only under a live attempt that says what changed, before it opens an epoch: also by
-- one that is added. Those of a new run are listed before anybody drives it.
CREATE OR REPLACE FUNCTION definition_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed CONSTANT uuid := CASE TG_OP WHEN 'INSERT' THEN NEW.run_id ELSE OLD.run_id END;
BEGIN
    IF NOT EXISTS (SELECT FROM attempts WHERE attempts.run_id = changed AND attempts.ended_at IS NULL
                   AND attempts.definition_changes IS NOT NULL AND attempts.fencing_token > coalesce((
                       SELECT epochs.fencing_token FROM epochs
                       WHERE epochs.run_id = changed AND epochs.status <> 'VOIDED'
                       ORDER BY epochs.epoch DESC LIMIT 1), 0)) THEN
        RAISE EXCEPTION 'the operators of run % cannot change now', changed USING ERRCODE = 'check_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER operators_insert_guard BEFORE INSERT ON operators FOR EACH ROW
    WHEN (NEW.added_under > 0) EXECUTE FUNCTION definition_guard();
