-- The ninth version: an attempt says which operator failed, and in which epoch; -1 for one that finishes for good.

ALTER TABLE attempts ADD COLUMN failed_operator_id text, ADD COLUMN failed_epoch bigint;
ALTER TABLE attempts ADD CONSTRAINT attempts_failed_check CHECK (
    (failed_operator_id IS NULL) = (failed_epoch IS NULL) AND (failed_epoch IS NULL OR failed_epoch >= -1)
    AND (failed_operator_id IS NULL OR outcome IS NOT DISTINCT FROM 'FAILED')
);
