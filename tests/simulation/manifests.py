"""Do the files that a run names exist, whole, as the undisturbed run would have written them, and by whom it says?

Everything that a committed row names is held from then on: it may not be written over, nor removed while that row needs
it. Nor may what a live attempt has written, before a row has named it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from iteration_lib.store.memory_rows import MemoryRun
from tests.simulation.change import Change, live_attempts
from tests.simulation.edge_rows import FOR_GOOD, live_parts
from tests.simulation.holders import Holder, Holders
from tests.simulation.reference import Buckets, Reference, flat
from tests.simulation.runner import decode, row_digest

if TYPE_CHECKING:
    from tests.simulation.attempt import SimulatedAttempt
    from tests.simulation.programs import Program
    from tests.simulation.run import SimulatedRun

Json = Mapping[str, Any]  # Any: JSON as it was read back

Edge = tuple[int, str]  # an epoch and an operator's id

POINTER = "outputs.json"
STRAY_POINTER = f"{POINTER}.stray"  # nobody who is known wrote it


class ManifestOracle:
    """Checks the files of one run against its rows and the reference."""

    def __init__(self, run: SimulatedRun, reference: Reference, violate: Callable[[str, str], None]) -> None:
        self._disk = run.disk
        self._root = run.location.uri
        self.program = run.program
        self.reference = reference
        self._violate = violate
        self._holders = Holders()
        self._manifests: dict[str, int] = {}  # by path, of which checkpoint
        self._final: Json | None = None
        self._pointer: bytes | None = None
        self._finished_by: dict[int, dict[str, Json]] = {}  # the finished operators as each checkpoint began
        self._of: dict[str, tuple[str, int]] = {}  # what lies in a checkpoint, by path: of which operator, and when

    def check(self, change: Change) -> None:
        """Check the files that a commit began to name."""
        before, after = change.before, change.after
        for operator_id, operator in after.operators.items():
            if operator["output"] is not None and before.operators[operator_id]["output"] is None:
                holder = Holder("operators", operator_id, f"the output of {operator_id}, finished for good")
                self._edge(operator["output"], (FOR_GOOD, operator_id), holder, operator["fencing_token"], after)
                self._equal(operator["output"], self.reference.finished[operator_id], holder.what)
        for place in range(len(before.parts), len(after.parts)):
            self._part(place, after)
        for name, pin in after.pins.items():
            if name not in before.pins:
                self._files(pin["pin"]["files"], Holder("pins", name, f"the pin of {name}"), None, after)
        for known, checkpoint in change.checkpoints:
            if known is None:
                self._finished_by[checkpoint["checkpoint_id"]] = _finished(after)
            elif known["manifest_path"] is None and checkpoint["manifest_path"] is not None:
                self._completed(checkpoint, after)
        if after.run["status"] == "FINISHED" != before.run["status"]:
            self.finished(after)

    def _part(self, place: int, rows: MemoryRun) -> None:
        part = rows.parts[place]
        epoch, operator_id = part["epoch"], part["operator_id"]
        first, end = part["first_bucket"], part["end_bucket"]
        what = f"buckets {first} to {end} of {operator_id} in epoch {epoch}"
        expected = self.reference.finished if epoch == FOR_GOOD else self.reference.results[epoch]
        if not part["output"]["files"]:
            return  # it was used up: see edge_rows
        self._files(part["output"]["files"], Holder("parts", place, what), part["fencing_token"], rows)
        self._equal(part["output"], expected[operator_id][first:end], what)

    def _completed(self, checkpoint: Json, rows: MemoryRun) -> None:
        path, token, epoch = checkpoint["manifest_path"], checkpoint["fencing_token"], checkpoint["epoch"]
        checkpoint_id = checkpoint["checkpoint_id"]
        what = f"the manifest of checkpoint {checkpoint_id}"
        holder = Holder("checkpoints", checkpoint_id, what)
        self._file(path, checkpoint["manifest_sha256"], None, holder, token, rows)
        self._manifests[path] = checkpoint_id
        content = self._disk.whole(path)
        if content is None:
            return
        manifest = cast("Json", json.loads(content))
        named = {key: manifest[key] for key in ("checkpoint_id", "epoch", "fencing_token")}
        expected = {key: checkpoint[key] for key in named}
        self._require(named == expected, what, "says {}, not {}", named, expected)
        tails = {**self.program.graph.feedback, **self.program.graph.states}
        edges = {
            self.program.graph.operator(name).operator_id: (epoch, self.program.graph.operator(tail).operator_id)
            for name, tail in tails.items()
        }
        is_last = epoch == self.reference.last_epoch
        outputs = self.reference.outputs if is_last else {}
        streams = (
            ("variables", self.reference.variables[epoch], edges),
            ("states", self.reference.states[epoch], edges),
        )
        for table, wanted, of in (*streams, ("outputs", outputs, {})):
            self._streams(manifest[table], wanted, holder.of(f"{table} of {what}"), token, rows, of)
        for table in ("variables", "states", "finished"):
            for operator_id, stream in manifest[table].items():
                self._of |= {f["path"]: (operator_id, token) for f in stream["files"] if f["path"] not in self._of}
        # The last outputs are written behind its beginning, and may be all that takes what finishes for good.
        finished = _finished(rows) if is_last else self._finished_by[checkpoint_id]
        self._require(manifest["finished"] == finished, what, "names other finished operators than the rows")
        for file in (file for stream in manifest["finished"].values() for file in stream["files"]):
            self._holders.hold(file["path"], holder)
        states = {key: "FINISHED" if is_last or key in finished else "RUNNING" for key in rows.operators}
        self._require(manifest["operators"] == states, what, "says {} of the operators", manifest["operators"])
        if is_last and checkpoint["status"] == "COMPLETED":
            self._final = manifest

    def is_discarded(self, path: str, rows: MemoryRun) -> bool:
        """Tell whether a path is the manifest of a checkpoint that was discarded."""
        return path in self._manifests and rows.checkpoints[self._manifests[path]]["status"] == "DISCARDED"

    def files_of(self, checkpoint_id: int) -> list[str]:
        """Return the files that a checkpoint names, its manifest among them."""
        return self._holders.named_in(checkpoint_id)

    def is_broken(self, checkpoint_id: int, read_by: Program, rows: MemoryRun) -> bool:
        """Tell whether a file that a program would read of a checkpoint is not there, whole."""
        paths, disk = self._read(checkpoint_id, read_by, rows), self._disk
        return not paths.isdisjoint(disk.damaged.keys() | disk.torn.keys()) or not paths <= disk.files.keys()

    def was_broken(self, checkpoint_id: int, read_by: Program, rows: MemoryRun) -> bool:
        """Tell whether it is or ever was: a disk that is healed holds again what was damaged."""
        spoilt = self._disk.spoilt
        is_spoilt = not spoilt.isdisjoint(self._read(checkpoint_id, read_by, rows))
        return is_spoilt or self.is_broken(checkpoint_id, read_by, rows)

    def _read(self, checkpoint_id: int, program: Program, rows: MemoryRun) -> set[str]:
        """Return the files of a checkpoint that a program reads: not those of an operator that is none of its own."""
        known = {operator.operator_id for operator in program.graph.operators}
        since = {key: row["added_under"] for key, row in rows.operators.items() if key in known}
        unread = {path for path, (operator_id, token) in self._of.items() if since.get(operator_id, math.inf) > token}
        return set(self.files_of(checkpoint_id)) - unread

    def needed_by(self, path: str, rows: MemoryRun) -> str | None:
        """Return who needs a file; None where nobody does."""
        return self._holders.needed_by(path, rows)

    def finished(self, rows: MemoryRun) -> None:
        """Check what is published."""
        content, manifest = self._disk.whole(POINTER), self._final
        if content is None or POINTER in self._disk.torn or manifest is None:
            self._violate("publishing", "the run is FINISHED, and its pointer is not there, whole")
            return
        pointer = json.loads(content)
        folders = {name: stream["files"][0]["path"].rpartition("/")[0] for name, stream in manifest["outputs"].items()}
        self._require(pointer["outputs"] == folders, "the pointer", "names {}, not {}", pointer["outputs"], folders)
        for key in ("checkpoint_id", "epoch"):
            self._require(pointer[key] == manifest[key], "the pointer", "says {} {}", key, pointer[key])
        digests = {pointer["state_digest"], rows.run["state_digest"], _digest(self.reference.outputs)}
        self._require(len(digests) == 1, "the pointer", "has another digest: {}", sorted(digests))
        outputs = {name: f"{self._root}/{folder}" for name, folder in folders.items()}
        self._require(rows.run["outputs"] == outputs, "the run", "names {}, not {}", rows.run["outputs"], outputs)
        for name, stream in manifest["outputs"].items():
            self._equal(stream, self.reference.outputs[name], f"output {name}")
            there = sorted(path for path in self._disk.files if path.startswith(f"{folders[name]}/"))
            named = sorted(file["path"] for file in stream["files"])
            self._require(there == named, f"output {name}", "has the files {}, not {}", there, named)
        if not self._holders.named_by(POINTER):
            self._holders.hold(POINTER, Holder("runs", None, "the pointer"))
        self._disk.whole_puts.add(POINTER)

    def file_written(self, path: str, content: bytes, before: bytes | None, rows: MemoryRun) -> None:
        """See that no file is written twice, but for the pointer: it is written over by itself."""
        if path == POINTER:
            self._pointer_written(content, rows)
        elif before is not None and not self._is_mended(path, content, before):
            self._violate("files", f"{path} was written twice")
        elif before is None and self._holders.named_by(path) is not None:
            self._violate("files", f"{path}, {self._holders.named_by(path)}, was written after it was named")

    def _is_mended(self, path: str, content: bytes, before: bytes) -> bool:
        """Tell whether a damaged copy was there, which is made anew, as far as the put came.

        One that cannot be read just now is left.
        """
        held = self._disk.damaged.get(path)
        is_bad = held is not None and before != held
        return path.split("/")[1:2] == ["origin"] and is_bad and held.startswith(content)

    def _pointer_written(self, content: bytes, rows: MemoryRun) -> None:
        if self._final is None or rows.run["terminated_by"] is None:
            self._violate("publishing", "the pointer is there before the final checkpoint is completed")
        if POINTER in self._disk.torn:
            return
        if self._pointer not in (None, content):
            self._violate("publishing", "the pointer was written over by another one")
        self._pointer = content

    def file_removed(self, path: str, rows: MemoryRun, *, by: SimulatedAttempt | None) -> None:
        """See that nothing is removed that somebody needs, or that a live attempt may name yet."""
        needed = self._holders.needed_by(path, rows)
        if needed is not None:
            self._violate("files", f"{path}, {needed}, was removed")
        writer = self._disk.written_by.get(path)
        is_live = writer is not None and writer.attempt_id in {live["attempt_id"] for live in live_attempts(rows)}
        if is_live and writer is not by and self._holders.named_by(path) is None:
            self._violate("files", f"{path} was removed, and the live attempt that wrote it may name it yet")

    def _streams(
        self,
        named: Mapping[str, Json],
        expected: Mapping[str, Buckets],
        holder: Holder,
        token: int,
        rows: MemoryRun,
        edges: Mapping[str, Edge],
    ) -> None:
        what = holder.what
        self._require(set(named) == set(expected), what, "there are {}, not {}", sorted(named), sorted(expected))
        for name in set(named) & set(expected):
            self._edge(named[name], edges.get(name), holder.of(f"{name}, {what}"), token, rows)
            self._equal(named[name], expected[name], f"{name}, {what}")

    def _edge(self, stream: Json, edge: Edge | None, holder: Holder, token: int, rows: MemoryRun) -> None:
        """Check files of this token, or of parts of an edge that is live."""
        tokens = {
            file["path"]: part["fencing_token"]
            for part in (live_parts(rows, *edge) if edge is not None else ())
            for file in part["output"]["files"]
        }
        for file in stream["files"]:
            self._files([file], holder, tokens.get(file["path"], token), rows)

    def _files(self, files: list[Json], holder: Holder, token: int | None, rows: MemoryRun) -> None:
        for file in files:
            digest = file["sha256"] if "sha256" in file else file["version"]
            self._file(file["path"], digest, file["size_bytes"], holder, token, rows)

    def _file(
        self, path: str, sha256: str, size_bytes: int | None, holder: Holder, token: int | None, rows: MemoryRun
    ) -> None:
        content, what = self._disk.whole(path), holder.what
        if content is None:
            self._violate("files", f"{what} is {path}, which is not there")
            return
        self._require(hashlib.sha256(content).hexdigest() == sha256, what, "{} has another digest", path)
        self._require(size_bytes in (None, len(content)), what, "{} has another size", path)
        writer = self._disk.written_by.get(path)
        tokens = [a["fencing_token"] for a in rows.attempts.values() if writer and a["attempt_id"] == writer.attempt_id]
        wanted = token if token is not None else rows.run["fencing_token"]
        self._require(tokens == [wanted], what, "{} was written under {}, not {}", path, tokens, wanted)
        self._holders.hold(path, holder)

    def _equal(self, stream: Json, expected: Buckets, what: str) -> None:
        found: Buckets = ()
        for file in stream["files"]:
            content = self._disk.whole(file["path"])
            part = decode(content) if content is not None else ()
            said = file["end_bucket"] - file["first_bucket"] if stream["kind"] == "buckets" else 1
            self._require(len(part) == said, what, "{} holds {} buckets, not {}", file["path"], len(part), said)
            found += part
        same = found == expected if stream["kind"] == "buckets" else flat(found) == flat(expected)
        self._require(same, what, "holds {}, the undisturbed run's is {}", found, expected)

    def _require(self, holds: bool, what: str, text: str, *values: object) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            self._violate("manifest", f"{what}: {text.format(*values)}")


def _finished(rows: MemoryRun) -> dict[str, Json]:
    return {key: o["output"] for key, o in rows.operators.items() if o["output"] is not None}


def _digest(outputs: Mapping[str, Buckets]) -> str:
    """Return the state digest of outputs, as iteration_lib/state/digest.py defines it."""
    described = [
        [name, [["row", "int64"]], len(flat(outputs[name])), row_digest(outputs[name])] for name in sorted(outputs)
    ]
    return hashlib.sha256(json.dumps(described, separators=(",", ":")).encode()).hexdigest()
