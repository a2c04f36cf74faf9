-- The seventh version: the checkpoints that may be discarded are found however many were.

CREATE INDEX checkpoints_retained_idx ON checkpoints (run_id, checkpoint_id)
    WHERE status IN ('COMPLETED', 'SUBSUMED');
