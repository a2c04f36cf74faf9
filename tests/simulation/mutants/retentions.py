"""What is kept, what goes, and what starts from it: discarding, collecting, branching, deleting (I18)."""

from __future__ import annotations

from tests.simulation.mutants.mutant import Mutant

_BRANCHING = "branching.py"
_JUDGEMENT = "garbage/judgement.py"
_ORIGIN = "driver/origin.py"
_REFERENCES = "garbage/references.py"
_RETENTION = "protocol/retention.py"
_STORE = "store/memory.py"
_ATTEMPTS = "    attempts = store.list_attempts(run.run_id)\n"
_PARTS = "    parts = store.list_parts(run.run_id)\n"
_RUN = "    run = store.find_run(run.run_id) or run\n"
_OPERATORS = "    operators = store.list_operators(run.run_id)\n"
_PINS = "    pins = store.list_pins(run.run_id)\n"
_CHECKPOINTS = """\
    checkpoints = tuple(
        replace(known, status=CheckpointStatus.DISCARDED) if known.checkpoint_id in as_discarded else known
        for known in store.list_checkpoints(run.run_id)
    )
    manifests = _read_manifests(store, run, location, checkpoints, frozenset(listed))
"""
_READ = _ATTEMPTS + _PARTS + _RUN + _OPERATORS + _PINS + _CHECKPOINTS

RETENTIONS = (
    Mutant(
        name="what a branch pins is free",
        rule="I18",
        file=_RETENTION,
        old="    return checkpoint_id not in state.pinned and (",
        new="    return (",
        in_short=True,
    ),
    Mutant(
        name="what a person pins is free",
        rule="I18",
        file=_RETENTION,
        old="    if checkpoint_id in state.pinned_by_hand:\n        return False\n",
        new="",
        in_short=True,
    ),
    Mutant(
        name="what a person pins is not read",
        rule="I18",
        file="store/row.py",
        old='pinned_by_hand=frozenset(run["pinned_by_hand"])',
        new="pinned_by_hand=frozenset()",
    ),
    Mutant(
        name="what a person releases stays pinned",
        rule="I18",
        file="store/memory_checkpoints.py",
        old="    del run.checkpoint_pins[command.checkpoint_id]\n",
        new="",
    ),
    Mutant(
        name="released checkpoint is taken for pinned by the protocol",
        rule="I18",
        file=_RETENTION,
        old="pinned_by_hand=state.pinned_by_hand - {event.checkpoint_id}",
        new="pinned_by_hand=state.pinned_by_hand",
    ),
    Mutant(
        name="run falls back behind what a person pins",
        rule="I21",
        file="protocol/fallback.py",
        old='(state.pinned, "a branch needs"), (state.pinned_by_hand, "a person has pinned")):',
        new='(state.pinned, "a branch needs"),):',
    ),
    Mutant(
        name="newest checkpoint is free",
        rule="I18",
        file=_RETENTION,
        old="state.completed is not None and checkpoint_id >= state.completed.checkpoint_id",
        new="state.completed is not None and checkpoint_id > state.completed.checkpoint_id",
    ),
    Mutant(
        name="claimed checkpoint stays as long as the policy likes",
        rule="I18",
        file=_RETENTION,
        old="if known.is_claimed or known.checkpoint_id not in kept",
        new="if known.checkpoint_id not in kept",
    ),
    Mutant(
        name="first checkpoints are kept instead of the last",
        rule="I18",
        file=_RETENTION,
        old="[-policy.retain_last :]",
        new="[: policy.retain_last]",
    ),
    Mutant(
        name="worst checkpoints are kept for the best",
        rule="I18",
        file=_RETENTION,
        old='    sign = -1 if policy.retain_mode == "min" else 1\n',
        new='    sign = 1 if policy.retain_mode == "min" else -1\n',
    ),
    Mutant(
        name="checkpoints of a deleted run are kept by its policy",
        rule="I18",
        file=_RETENTION,
        old="    if state.status is RunStatus.DELETED:\n        return _ids(free)\n",
        new="",
    ),
    Mutant(
        name="run is deleted under a live attempt",
        rule="lease",
        file=_RETENTION,
        old="    check_undriven(state, now, gone_attempt_id=event.gone_attempt_id)\n",
        new="",
    ),
    Mutant(
        name="deleted branch holds its origin",
        rule="I18",
        file=_RETENTION,
        old="    if state.holds_origin:\n        commands.append(ReleaseOrigin())\n",
        new="",
    ),
    Mutant(
        name="branch never lets its origin go",
        rule="I18",
        file="protocol/checkpoint.py",
        old="    if state.holds_origin:\n        commands.append(ReleaseOrigin())\n",
        new="",
    ),
    Mutant(
        name="branch is made of a checkpoint that was discarded meanwhile",
        rule="I18",
        file=_STORE,
        old='            if not is_there or found["status"] not in ("COMPLETED", "SUBSUMED"):\n',
        new="            if not is_there:\n",
    ),
    Mutant(
        name="whoever knew the origin before does not hear of a branch",
        rule="I18",
        file=_STORE,
        old='            source.run["revision"] += 1\n',
        new="",
    ),
    Mutant(
        name="collection takes what a live attempt has not named yet",
        rule="files",
        file=_JUDGEMENT,
        old="    if not has_ended:\n        return Fate.LIVE",
        new="    if has_ended is None:\n        return Fate.LIVE",
        in_short=True,
    ),
    Mutant(
        name="what one row let go is garbage, whoever else needs it",
        rule="files",
        file=_JUDGEMENT,
        old="    if path in references.needed:\n",
        new="    if path in references.needed and path not in references.let_go:\n",
    ),
    Mutant(
        name="what attempts that have ended left stays",
        rule="garbage",
        file=_JUDGEMENT,
        old='    return Fate.GARBAGE, "nothing names it, and the attempt that wrote it has ended"\n',
        new='    return Fate.LIVE, "nothing names it, and the attempt that wrote it has ended"\n',
    ),
    Mutant(
        name="published files are nobody's",
        rule="garbage",
        file=_JUDGEMENT,
        old='    return found[1] if found is not None else ""\n',
        new='    return ""\n',
    ),
    Mutant(
        name="collection reads the attempts last",
        rule="files",
        file=_REFERENCES,
        old=_READ,
        new=_PARTS + _RUN + _OPERATORS + _PINS + _CHECKPOINTS + _ATTEMPTS,
    ),
    Mutant(
        name="collection reads the parts of edges last",
        rule="files",
        file=_REFERENCES,
        old=_READ,
        new=_ATTEMPTS + _RUN + _OPERATORS + _PINS + _CHECKPOINTS + _PARTS,
        equivalent="what is durable is what was so when the run was read, before the manifests: later parts are needed",
    ),
    Mutant(
        name="collection reads last what is durable",
        rule="files",
        file=_REFERENCES,
        old=_READ,
        new=_ATTEMPTS + _PARTS + _OPERATORS + _PINS + _CHECKPOINTS + _RUN,
    ),
    Mutant(
        name="collection goes by what was durable before the run fell back",
        rule="files",
        file=_REFERENCES,
        old=_RUN,
        new="",
    ),
    Mutant(
        name="collection reads the operators before the parts of edges",
        rule="files",
        file=_REFERENCES,
        old=_READ,
        new=_ATTEMPTS + _OPERATORS + _PARTS + _RUN + _PINS + _CHECKPOINTS,
        equivalent="parts of operators that finish for good are needed for as long as they are not voided",
    ),
    Mutant(
        name="edges of durable epochs stay",
        rule="garbage",
        file=_REFERENCES,
        old="        elif 0 <= part.epoch <= rows.run.last_durable_epoch:\n",
        new="        elif part.epoch < -1:\n",
    ),
    Mutant(
        name="edges that an attempt may go on behind are garbage",
        rule="files",
        file=_REFERENCES,
        old="        elif part.voided_at is None:\n",
        new="        elif part.epoch == rows.run.last_durable_epoch and part.voided_at is None:\n",
    ),
    Mutant(
        name="outputs of operators that finished for good are garbage",
        rule="files",
        file=_REFERENCES,
        old="            if operator.output is not None:\n",
        new="            if operator.output is not None and operator.role == 'DATA':\n",
    ),
    Mutant(
        name="pinned data are garbage",
        rule="files",
        file=_REFERENCES,
        old="    if needed or not is_deleted:\n",
        new="    if needed and is_deleted:\n",
    ),
    Mutant(
        name="pinned data go with their run, though a branch needs them",
        rule="files",
        file=_REFERENCES,
        old="    if needed or not is_deleted:\n",
        new="    if not is_deleted:\n",
    ),
    Mutant(
        name="manifest that was discarded while it was looked for is an error",
        rule="errors",
        file=_REFERENCES,
        old="            if not is_discarded and not _is_discarded_now(store, run, checkpoint):\n",
        new="            if not is_discarded:\n",
    ),
    Mutant(
        name="pointer of a deleted run stays",
        rule="garbage",
        file=_REFERENCES,
        old='        let_go[POINTER] = "the run was deleted"\n',
        new="        pass\n",
    ),
    Mutant(
        name="files of discarded checkpoints are needed",
        rule="garbage",
        file=_REFERENCES,
        old="    if checkpoint.status is CheckpointStatus.DISCARDED:\n        let_go",
        new="    if checkpoint.status is CheckpointStatus.ABORTED:\n        let_go",
    ),
    Mutant(
        name="branch starts from nothing",
        rule="I6",
        file="driver/drive.py",
        old="    return keep_origin(context) if state.holds_origin else None\n",
        new="    return None\n",
    ),
    Mutant(
        name="branch reads its origin's files as its own",
        rule="errors",
        file=_ORIGIN,
        old="copies = {name_in(manifest, op): self._copied(saved) for",
        new="copies = {name_in(manifest, op): saved for",
    ),
    Mutant(
        name="branch asks for data that its origin has pinned",
        rule="pins",
        file=_ORIGIN,
        old="    keeper.keep_pins()\n",
        new="",
    ),
    Mutant(
        name="branch computes what had finished for good",
        rule="I11",
        file=_ORIGIN,
        old="    keeper.keep_finished(manifest)\n",
        new="",
    ),
    Mutant(
        name="branch takes over what it would compute otherwise",
        rule="branches",
        file="marker.py",
        old="return frozenset(branch.keeps) & there_since(operators, fencing_token=0)",
        new="return there_since(operators, fencing_token=0)",
    ),
    Mutant(
        name="attempts of a branch share their copies",
        rule="manifest",
        file=_ORIGIN,
        old='folder=f"{context.attempt.folder}/{ORIGIN}"',
        new="folder=ORIGIN",
    ),
    Mutant(
        name="newest checkpoint is claimed",
        rule="branches",
        file=_BRANCHING,
        old="    if request.mode is RestoreMode.CLAIM and source.is_needed_by_its_run:\n",
        new="    if request.mode is RestoreMode.CLAIM and not source.uri:\n",
    ),
    Mutant(
        name="branch goes without data that come only once",
        rule="branches",
        file=_BRANCHING,
        old="        elif not operator.replays and operator.operator_id not in keeps:\n",
        new="        elif not operator.name:\n",
    ),
    Mutant(
        name="branch that is to read anew keeps its origin's data",
        rule="branches",
        file=_BRANCHING,
        old='        if data == "kept" or (data is None and (',
        new='        if data != "none" or (data is None and (',
    ),
    Mutant(
        name="branch starts from another checkpoint than the one that is named",
        rule="branches",
        file=_BRANCHING,
        old="checkpoint_id in (None, known.checkpoint_id)",
        new="(checkpoint_id is None or known.checkpoint_id >= checkpoint_id)",
    ),
    Mutant(
        name="branch of another checkpoint is taken for the one that is asked for",
        rule="branches",
        file=_BRANCHING,
        old="    _check_same(store, found, new, origin, data=request.data)\n",
        new="",
    ),
    Mutant(
        name="branch that reads anew is taken for one that keeps its data",
        rule="branches",
        file=_BRANCHING,
        old="        if data is not None and not _reads_as_said(store, known, origin, data):\n",
        new="        if data is not None and not known.run_id:\n",
    ),
    Mutant(
        name="branch of a checkpoint that goes before it is made is not told which ones there are",
        rule="errors",
        file=_BRANCHING,
        old="        except (StateCorruptedError, OriginGoneError):\n",
        new="        except StateCorruptedError:\n",
    ),
    Mutant(
        name="attempt that is not the last one discards",
        rule="I18",
        file=_RETENTION,
        old="    if event.attempt_id not in (None, state.last_attempt_id):\n",
        new="    if False:\n",
    ),
    Mutant(
        name="checkpoint that is needed is discarded",
        rule="I18",
        file=_RETENTION,
        old=" or not _is_free(state, checkpoint_id):\n",
        new=":\n",
    ),
    Mutant(
        name="checkpoint without files is pinned",
        rule="I18",
        file=_RETENTION,
        old="    if event.status not in (CheckpointStatus.COMPLETED, CheckpointStatus.SUBSUMED):\n",
        new="    if False:\n",
    ),
    Mutant(
        name="run is deleted from any status",
        rule="I18",
        file=_RETENTION,
        old="    check_transition(state.status, RunStatus.DELETED)\n",
        new="",
        equivalent="a run of any status may be deleted but of that one, and there it is answered before",
    ),
)
