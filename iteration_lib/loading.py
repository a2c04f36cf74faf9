"""How is a finished run's model read back?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from iteration_lib.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


def load(run: str, *, store: str | None = None) -> Mapping[str, pa.Table]:
    """Return the published outputs of a run, by name, as Arrow tables.

    `run` is a run id or a run key; `store` is the store's address (else ITERATION_STORE_URL, else the embedded store).
    Every file is checked against its digest. Raises RunNotFoundError, UsageError when the run has not finished, or
    StateCorruptedError that names the file.
    """
    # Imported here so that `import iteration_lib` stays cheap.
    from iteration_lib.config import read_settings  # noqa: PLC0415
    from iteration_lib.launch import read_outputs  # noqa: PLC0415
    from iteration_lib.store.opening import find_run, open_store  # noqa: PLC0415

    with open_store(read_settings(os.environ, store_url=store)) as opened:
        found = find_run(opened, run)
        if found.outputs is None:
            raise UsageError(f"run {run!r} is {found.status.value} and has no outputs before it is FINISHED")
        return read_outputs(opened, found)
