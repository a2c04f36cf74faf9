"""How does a loop that exists already become durable? By `open_run`, around it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iteration_lib.errors import ParameterError
from iteration_lib.model.checkpointing import Checkpointing
from iteration_lib.model.params import check_scalars

if TYPE_CHECKING:
    from iteration_lib.loop_run import LoopRun


@contextmanager
def open_run(  # noqa: PLR0913 - all but the key may be left out
    run_key: str,
    *,
    params: Mapping[str, object] | None = None,
    spark: Any = None,  # noqa: ANN401 - a SparkSession: importing this must not import Spark
    state: str | None = None,
    store: str | None = None,
    checkpointing: Checkpointing | None = None,
    takeover: bool = False,
    allow_fallback: bool = False,
) -> Iterator[LoopRun]:
    """Give the run of this key, whose epochs are a loop: `for epoch in run.epochs(centres=start, max_epochs=20):`.

    A run is found again by its key; its parameters belong to it, and others are refused. `state` and `store` are
    addresses (else ITERATION_STATE_URI and ITERATION_STORE_URL, else this user's own). Variables that are Spark
    DataFrames need their session, `spark`. With `takeover` the run is taken from an attempt that you know is gone,
    where that cannot be proved. With `allow_fallback` a newest checkpoint that is broken is given up for an older one.

    On the way out the attempt has ended: FAILED when an error passed, and the next one goes on either way.
    """
    # Imported here so that `import iteration_lib` stays cheap.
    from iteration_lib.config import read_settings  # noqa: PLC0415
    from iteration_lib.loop_run import LoopRequest, loop_run  # noqa: PLC0415
    from iteration_lib.store.run_key import check_run_key  # noqa: PLC0415

    check_run_key(run_key)
    if checkpointing is not None and checkpointing.alignment_timeout_seconds is not None:
        problem = "alignment_timeout_seconds is for operators that finish inside an epoch, and a loop has none; drop it"
        raise ParameterError(problem, name="alignment_timeout_seconds")
    request = LoopRequest(
        run_key=run_key,
        params=check_scalars(params or {}),
        state_uri=state,
        checkpointing=checkpointing or Checkpointing(),
    )
    settings = read_settings(os.environ, store_url=store, state_uri=state)
    with loop_run(settings, request, spark=spark, takeover=takeover, allow_fallback=allow_fallback) as run:
        yield run
