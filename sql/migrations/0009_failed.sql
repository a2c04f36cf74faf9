-- The ninth version: an attempt says which operator failed, and in which epoch (-1 for one that finishes for good); an
-- operator says since which attempt it is the one of its id, so that nobody takes over what another one of that id left.

ALTER TABLE attempts ADD COLUMN failed_operator_id text, ADD COLUMN failed_epoch bigint;
ALTER TABLE attempts ADD CONSTRAINT attempts_failed_check CHECK (
    (failed_operator_id IS NULL) = (failed_epoch IS NULL) AND (failed_epoch IS NULL OR failed_epoch >= -1)
    AND (failed_operator_id IS NULL OR outcome IS NOT DISTINCT FROM 'FAILED')
);

ALTER TABLE operators ADD COLUMN added_under bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE FUNCTION operators_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
    RETURN NEW;
END $$;
DROP TRIGGER operators_guard ON operators;
CREATE TRIGGER operators_guard BEFORE INSERT OR UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION operators_guard();

-- An epoch begins open, a checkpoint pending: what they come to is a step of its own, which has its guards.
CREATE FUNCTION start_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of run % does not begin as %', TG_ARGV[0], NEW.run_id, NEW.status USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER epochs_start_guard BEFORE INSERT ON epochs FOR EACH ROW
    WHEN (NEW.status IN ('ALIGNED', 'DURABLE')) EXECUTE FUNCTION start_guard('an epoch');
CREATE TRIGGER checkpoints_start_guard BEFORE INSERT ON checkpoints FOR EACH ROW
    WHEN (NEW.status IN ('COMPLETED', 'SUBSUMED')) EXECUTE FUNCTION start_guard('a checkpoint');
CREATE TRIGGER checkpoints_completion_guard BEFORE UPDATE OF status ON checkpoints FOR EACH ROW
    WHEN (OLD.status = 'PENDING' AND NEW.status IN ('COMPLETED', 'SUBSUMED'))
    EXECUTE FUNCTION writer_guard('a completed checkpoint');
