"""Where does small real input come from? From packages that carry it, written once to Parquet."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

# Each data set's package is imported where it is used: a run on other data needs none of them.


def write_digits(path: str | Path) -> Path:
    """Write the UCI handwritten digits, 1,797 x 64 `features` from 0 to 16 and their `label`, unless they are there."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    found = load_digits()
    return _write_once(path, _table(found.data, found.target))


def write_breast_cancer(path: str | Path) -> Path:
    """Write the Wisconsin breast cancer table, 569 x 30 standardised `features` and `label`, unless it is there."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

    found = load_breast_cancer()
    return _write_once(path, _table((found.data - found.data.mean(axis=0)) / found.data.std(axis=0), found.target))


def write_les_miserables(path: str | Path) -> Path:
    """Write who appears with whom in Les Miserables, as edges `src`, `dst` in both directions, unless it is there."""
    from networkx import les_miserables_graph  # noqa: PLC0415

    pairs = [pair for edge in les_miserables_graph().edges() for pair in (edge, edge[::-1])]
    return _write_once(path, pa.table({"src": [src for src, _ in pairs], "dst": [dst for _, dst in pairs]}))


def _table(features: npt.NDArray[np.float64], label: npt.NDArray[np.int64]) -> pa.Table:
    rows, width = features.shape
    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
    return pa.table({"features": pa.ListArray.from_arrays(offsets, features.ravel()), "label": label})


def _write_once(path: str | Path, table: pa.Table) -> Path:
    final = Path(path)
    if not final.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(8)}.tmp")
        pq.write_table(table, temporary)
        with contextlib.suppress(FileExistsError):  # somebody else was quicker, and may have pinned theirs
            os.link(temporary, final)
        temporary.unlink()
    return final
