"""Where may one call of an operator leave files that are nobody else's?

A Spark task may be repeated, and run twice at the same time: every call gets a new folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex

from iteration_lib.model.bucket import Bucket
from iteration_lib.runner.seam import Invocation
from iteration_lib.state.location import StateLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The folder of one operator in one epoch, relative to the run's; it can be sent to executors."""

    location: StateLocation
    folder: str

    def new_folder(self, bucket: Bucket | None) -> str:
        """Return the address of an empty folder, which is there on local disks. Raises StateLocationError."""
        name = "whole" if bucket is None else f"bucket-{bucket.index:05d}"
        return self.location.make_folder(f"{self.folder}/{name}-{token_hex(8)}")


def scratch_of(invocation: Invocation, location: StateLocation) -> Scratch | None:
    """Return where an operator's calls have their folders; None for one that asks for none."""
    if "scratch" not in invocation.operator.injected:
        return None
    if invocation.scratch is None:
        raise ValueError(f"operator {invocation.operator.operator_id!r} asks for scratch, and no folder is named")
    return Scratch(location=location, folder=invocation.scratch)


def injected_scratch(scratch: Scratch | None, bucket: Bucket | None = None) -> dict[str, str]:
    """Return what one call of an operator gets by the name `scratch`."""
    return {"scratch": scratch.new_folder(bucket)} if scratch is not None else {}
