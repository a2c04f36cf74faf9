-- The sixth version: a run goes on from an older checkpoint where its newest one is broken (I21).

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

-- Nobody has had anything of what is given up, and no epoch has been opened since (I21).
CREATE FUNCTION fallbacks_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.run_id = NEW.run_id AND checkpoints.status = 'SUBSUMED'
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

-- A run's last durable epoch is an earlier one again only where it falls back.
CREATE OR REPLACE FUNCTION runs_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IN ('FINISHED', 'STOPPED', 'DELETED') AND NEW.status = OLD.status
       AND to_jsonb(NEW) - 'revision' <> to_jsonb(OLD) - 'revision' THEN
        RAISE EXCEPTION 'run % is over or stopped and cannot change', OLD.run_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.fencing_token < OLD.fencing_token OR NEW.last_durable_epoch < OLD.last_durable_epoch AND NOT EXISTS (
           SELECT FROM fallbacks WHERE fallbacks.run_id = OLD.run_id AND fallbacks.fencing_token = OLD.fencing_token
           AND fallbacks.epoch = NEW.last_durable_epoch)
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

-- A durable epoch is voided only where its run falls back.
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
        IF (NEW.epoch > 0 OR EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id))
           AND NOT EXISTS (SELECT FROM epochs WHERE epochs.run_id = NEW.run_id
               AND epochs.epoch = NEW.epoch - 1 AND epochs.status IN ('ALIGNED', 'DURABLE')
               AND epochs.decision ->> 'terminated_by' IS NULL)
           AND NOT EXISTS (SELECT FROM branches WHERE branches.run_id = NEW.run_id
               AND branches.epoch = NEW.epoch - 1) THEN
            RAISE EXCEPTION 'epoch % does not follow another one', NEW.epoch USING ERRCODE = 'check_violation';
        END IF;
    ELSE
        IF (NEW.run_id, NEW.epoch, NEW.fencing_token) IS DISTINCT FROM (OLD.run_id, OLD.epoch, OLD.fencing_token) THEN
            RAISE EXCEPTION 'the identity of epoch % cannot change', OLD.epoch USING ERRCODE = 'check_violation';
        END IF;
        IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
            ('OPEN', 'ALIGNED'), ('ALIGNED', 'DURABLE'), ('OPEN', 'VOIDED'), ('ALIGNED', 'VOIDED'))
           AND NOT ((OLD.status, NEW.status) = ('DURABLE', 'VOIDED') AND EXISTS (SELECT FROM fallbacks
               JOIN runs USING (run_id, fencing_token)
               WHERE fallbacks.run_id = OLD.run_id AND fallbacks.epoch < OLD.epoch)) THEN
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

-- The newest checkpoint goes, and an older one takes its place, only where their run falls back.
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
            ('SUBSUMED', 'DISCARDED'), ('COMPLETED', 'DISCARDED'))
           AND NOT ((OLD.status, NEW.status) = ('SUBSUMED', 'COMPLETED') AND EXISTS (SELECT FROM fallbacks
               JOIN runs USING (run_id, fencing_token)
               WHERE fallbacks.run_id = OLD.run_id AND fallbacks.to_checkpoint_id = OLD.checkpoint_id)) THEN
            RAISE EXCEPTION 'checkpoint % cannot go from % to %', OLD.checkpoint_id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.status = 'DISCARDED' AND OLD.status <> 'DISCARDED' THEN
            IF EXISTS (SELECT FROM branches WHERE branches.origin_run_id = OLD.run_id
                       AND branches.origin_checkpoint_id = OLD.checkpoint_id AND branches.released_at IS NULL)
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
