"""What does a checkpoint consist of? One JSON file that names every file of it, with digests.

A manifest is written once and never changed. `format_version` grows when a reader has to know; fields are only ever
added within a version, and readers pass over what they do not know. Paths are relative to the run's folder.

Version 2 names variables by their operators' ids, which outlive a renaming; version 1 named them by their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from iteration_lib.errors import StateCorruptedError
from iteration_lib.state.saved import SavedStream

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint of `epoch`: what the next epoch receives, and what had finished by then, by operator id.

    `variables` and `states` (what operators carry from epoch to epoch) are as the next epoch receives them; `outputs`
    holds the published files, in the FINAL checkpoint only; `operators` maps an operator to RUNNING or
    FINISHED: between epochs none is half done.
    """

    run_id: str
    run_key: str
    reference: str
    checkpoint_id: int
    epoch: int
    fencing_token: int
    max_buckets: int
    variables: Mapping[str, SavedStream]
    finished: Mapping[str, SavedStream]
    operators: Mapping[str, str]
    outputs: Mapping[str, SavedStream]
    states: Mapping[str, SavedStream] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def size_bytes(self) -> int:
        """The size of the files that this checkpoint wrote: variables, states and outputs."""
        streams = (*self.variables.values(), *self.states.values(), *self.outputs.values())
        return sum(file.size_bytes for stream in streams for file in stream.files)

    @property
    def streams(self) -> tuple[SavedStream, ...]:
        """Every stream that it names, those of finished operators and outputs included."""
        sections = (self.variables, self.states, self.finished, self.outputs)
        return tuple(stream for section in sections for stream in section.values())

    def to_bytes(self) -> bytes:
        """Return the file's bytes, in the version that its names are of; equal manifests give equal bytes."""
        found: dict[str, object] = {
            "format_version": self.format_version,
            **{name: getattr(self, name) for name in _SCALARS},
            "operators": dict(self.operators),
            **{name: {key: s.to_json() for key, s in getattr(self, name).items()} for name in _STREAMS},
        }
        return json.dumps(found, sort_keys=True, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes, *, path: str) -> Manifest:
        """Rebuild a manifest of any version that this code knows; raises StateCorruptedError that names the file."""
        try:
            found = cast("dict[str, Any]", json.loads(content))  # Any: JSON, checked below
            version = found["format_version"]
            if not isinstance(version, int) or version < 1:
                raise StateCorruptedError(path, f"has no format version, but {version!r}")
            if version > FORMAT_VERSION:
                raise StateCorruptedError(
                    path, f"has format version {version}, this code reads up to {FORMAT_VERSION}; upgrade iteration-lib"
                )
            fields: dict[str, Any] = {name: found[name] for name in (*_SCALARS, "operators")}  # Any: as above
            for name in _STREAMS:
                streams = found.get(name, {}) if name == "states" and version == 1 else found[name]
                fields[name] = {key: SavedStream.from_json(stream) for key, stream in streams.items()}
            return cls(format_version=version, **fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            raise StateCorruptedError(path, f"is no manifest ({err!r})") from err


_SCALARS = ("run_id", "run_key", "reference", "checkpoint_id", "epoch", "fencing_token", "max_buckets")
_STREAMS = ("variables", "states", "finished", "outputs")
