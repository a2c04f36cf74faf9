"""The command `iteration explain`: why did a run go as it did?"""

from __future__ import annotations

from typing import cast

import click

from iteration_lib.cli.options import settings_of, store_options
from iteration_lib.cli.output import print_json, print_sentences
from iteration_lib.explanation import explain_run, read_history
from iteration_lib.store.opening import find_run, open_store
from iteration_lib.view import Json


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("epoch", type=click.IntRange(min=0), required=False)
@store_options
def explain(run_name: str, store_url: str | None, *, epoch: int | None, as_json: bool) -> None:
    """Say why a run, or one of its EPOCHs, went as it did. What was skipped or waited for, and who decided it."""
    with open_store(settings_of(store_url)) as store:
        answer = explain_run(read_history(store, find_run(store, run_name)), epoch)
    if as_json:
        print_json(answer)
        return
    print_sentences(f"run {answer['run_key']}: {answer['status']}", answer["because"])
    for known in _listed(answer, "attempts"):
        print_sentences(
            f"attempt {known['attempt']}, {known['holder']}: {known['outcome'] or 'not ended'}", known["because"]
        )
    for known in _listed(answer, "operators"):
        print_sentences(f"operator {known['operator_id']}: FINISHED", known["because"])
    for known in _listed(answer, "epochs"):
        print_sentences(f"epoch {known['epoch']}, attempt {known['attempt']}: {known['status']}", known["because"])
    for known in _listed(answer, "checkpoints"):
        title = f"checkpoint {known['checkpoint_id']} of epoch {known['epoch']}, {known['kind']}: {known['status']}"
        print_sentences(title, known["because"])


def _listed(answer: Json, name: str) -> list[Json]:
    return cast("list[Json]", answer[name])
