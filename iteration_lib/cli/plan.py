"""The command `iteration plan`: what would the next attempt do?"""

from __future__ import annotations

import sys

import click

from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_fields, print_json, print_sentences, print_table
from iteration_lib.errors import UsageError
from iteration_lib.planning import RunPlan, plan_run
from iteration_lib.process import is_gone
from iteration_lib.protocol.bucket_range import show_buckets, show_share
from iteration_lib.protocol.resume import Step
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.store.record import AttemptRecord, StopRecord
from iteration_lib.view import Json, instant, stop_json


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--allow-dropped-state", is_flag=True, help="Plan as if the state of operators that are gone may go too.")
@click.option("--ignore-edges", is_flag=True, help="Plan as if what is durable inside the open epoch were not.")
@store_options
def plan(run_name: str, store_url: str | None, *, allow_dropped_state: bool, ignore_edges: bool, as_json: bool) -> None:
    """Say what the next attempt would skip, restore and run. It says what stands in the way, and starts nothing."""
    with open_store(settings_of(store_url)) as store:
        run = find_run(store, run_name)
        planned = plan_run(store, run, allow_dropped_state=allow_dropped_state, ignore_edges=ignore_edges)
    if as_json:
        print_json(plan_json(planned))
    else:
        print_plan(planned)
    for refusal in planned.refusals:
        click.echo(f"error: {refusal}", err=True)
    if planned.refusals:
        sys.exit(UsageError.exit_code)


def plan_json(planned: RunPlan) -> Json:
    """Return a plan."""
    resume = planned.resume
    return {
        "run_id": planned.run.run_id,
        "run_key": planned.run.run_key,
        "status": planned.run.status.value,
        "next": _next(planned),
        "epoch": resume.epoch if resume is not None else None,
        "driven_by": _driven_by(planned.live),
        "stop": stop_json(planned.stop) if planned.stop is not None else None,
        "checkpoint": _checkpoint_json(planned),
        "operators": [_step_json(step) for step in resume.steps] if resume is not None else [],
        "frontier": [
            {"operator_id": trigger.operator_id, "buckets": [list(known) for known in trigger.buckets]}
            for trigger in (resume.frontier if resume is not None else ())
        ],
        "unused_edges": [
            {"operator_id": edge.operator_id, "buckets": [list(known) for known in edge.buckets], "reason": edge.reason}
            for edge in (resume.unused if resume is not None else ())
        ],
        "commits": [{"output": c.output, "epoch": c.epoch, "target": c.target} for c in planned.commits],
        "unheard": [
            {"listener_id": known.listener_id, "first_epoch": known.first_epoch, "last_epoch": known.last_epoch}
            for known in planned.unheard
        ],
        "pins": [
            {"name": pin.name, "files": pin.files, "rows": pin.rows, "problem": pin.problem} for pin in planned.pins
        ],
        "changes": list(planned.changes),
        "refusals": list(planned.refusals),
    }


def _next(planned: RunPlan) -> str:
    """Say what is left to do."""
    run = planned.run
    if planned.resume is not None:
        asked_to = run.asked_to if run.status is not RunStatus.STOPPED else None
        ending = {StopKind.STOP: ", and stop behind it", StopKind.DRAIN: ", the run's last", None: ""}
        return f"run epoch {planned.resume.epoch}{ending[asked_to]}"
    if run.status is RunStatus.DELETED:
        return "nothing: the run was deleted"
    if run.finished_at is not None:
        return "nothing: the run is finished"
    if run.terminated_by is None:
        return "commit what waits for its sinks, and stop" if planned.commits else "stop"
    return "publish the outputs"


def _asked_to(stop: StopRecord | None) -> str | None:
    if stop is None:
        return None
    return f"{stop.kind.name.lower()}, by {stop.requested_by} {instant(stop.requested_at)}"


def _driven_by(live: AttemptRecord | None) -> str | None:
    if live is None:
        return None
    holder = live.holder.describe()
    if is_gone(live.holder):
        return f"{holder}, which is gone: the next attempt takes the run over"
    until = instant(live.lease_expires_at)
    if live.is_lease_over:
        return f"{holder}, whose lease ran out {until}: the next attempt takes the run over"
    return f"{holder}; its lease runs out {until} unless it is renewed"


def _checkpoint_json(planned: RunPlan) -> Json | None:
    restored = planned.checkpoint
    if restored is None:
        return None
    return {
        "checkpoint_id": restored.checkpoint_id,
        "epoch": restored.epoch,
        "origin": restored.origin,
        "files": restored.files,
        "bytes": restored.size_bytes,
        "manifest": restored.manifest_path,
    }


def _step_json(step: Step) -> Json:
    return {
        "operator_id": step.vertex.operator_id,
        "action": step.action.value,
        "running": [list(known) for known in step.running],
        "of": step.vertex.total,
        "reason": step.reason,
    }


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"the epochs {first} to {last}"


def print_plan(planned: RunPlan) -> None:
    """Print a plan for a person, but for its refusals."""
    answer = plan_json(planned)
    fields = {name: answer[name] for name in ("run_key", "status", "next", "driven_by")}
    print_fields({**fields, "asked_to": _asked_to(planned.stop), "checkpoint": answer["checkpoint"]})
    if planned.resume is not None:
        rows: list[Json] = [
            {
                "operator": step.vertex.operator_id,
                "action": step.action.value,
                "runs": show_share(step.running, step.vertex.total) if step.running else "",
                "reason": step.reason,
            }
            for step in planned.resume.steps
        ]
        click.echo()
        print_table("operators", rows, ("operator", "action", "runs", "reason"))
        totals = {step.vertex.operator_id: step.vertex.total for step in planned.resume.steps}
        begin = [
            f"{trigger.operator_id}, {show_share(trigger.buckets, totals[trigger.operator_id])}"
            for trigger in planned.resume.frontier
        ]
        print_sentences("begins with", begin)
        unused = [
            f"{edge.operator_id}, buckets {show_buckets(edge.buckets)}: {edge.reason}" for edge in planned.resume.unused
        ]
        print_sentences("durable, and not used", unused)
    if planned.pins:
        click.echo()
        pins: list[Json] = [
            {"stream": p.name, "files": p.files, "rows": p.rows, "problem": p.problem} for p in planned.pins
        ]
        print_table("pinned input", pins, ("stream", "files", "rows", "problem"))
    print_sentences("commits first", [f"{c.output} of epoch {c.epoch} to {c.target}" for c in planned.commits])
    print_sentences(
        "listeners hear first",
        [f"{known.listener_id} of {_epochs(known.first_epoch, known.last_epoch)}" for known in planned.unheard],
    )
    print_sentences("the iteration has changed", planned.changes)
