"""Which fields the form has that starts a run from a checkpoint."""

from __future__ import annotations

import re

import pytest

from iteration_ui.answer import answer_page
from iteration_ui.start_form import Field, StartForm, make_start_form


def test_form_has_a_typed_field_for_each_parameter_and_names_the_checkpoint() -> None:
    params = {"k": 3, "ratio": 0.1, "input": "/data", "deep": True, "limit": None, "seed": 2**63 + 1}

    form = make_start_form("kmeans/manual__1", params, checkpoint_id=4, epoch=7)

    assert (
        StartForm(
            dag_id="kmeans",
            checkpoint_id=4,
            epoch=7,
            start_from="kmeans/manual__1@4",
            fields=(
                Field(name="k", kind="integer", value="3"),
                Field(name="ratio", kind="number", value="0.1"),
                Field(name="input", kind="string", value="/data"),
                Field(name="deep", kind="boolean", value="true"),
                Field(name="limit", kind="null", value=""),
                Field(name="seed", kind="integer", value="9223372036854775809"),
            ),
        )
        == form
    )


def test_form_asks_what_becomes_of_the_data() -> None:
    form = make_start_form("kmeans/manual__1", {"k": 3}, checkpoint_id=4, epoch=7)

    text = bytes(answer_page("start.html", form=form, back="x", site="", title="t").body).decode()

    assert ["", "new", "kept"] == re.findall(r'<option value="(\w*)">', text)
    assert 'data-name="start_data" data-kind="null"' in text


def test_form_cannot_be_sent_before_its_script_is_there() -> None:
    """A click that comes before would load the page again, and start nothing."""
    form = make_start_form("kmeans/manual__1", {"k": 3}, checkpoint_id=4, epoch=7)

    text = bytes(answer_page("start.html", form=form, back="x", site="", title="t").body).decode()

    assert ["disabled"] == re.findall(r'<button autocomplete="off" (\w+)>Start</button>', text)


@pytest.mark.parametrize(("max_epochs", "shown"), [(12, "8"), (None, "")])
def test_form_of_a_branch_counts_its_own_epochs_as_its_dag_does(max_epochs: int | None, shown: str) -> None:
    form = make_start_form("kmeans/b", {"max_epochs": max_epochs}, checkpoint_id=2, epoch=5, first_epoch=4)

    assert [("max_epochs", shown)] == [(field.name, field.value) for field in form.fields]


def test_checkpoint_that_the_origin_started_from_is_not_asked_for_again() -> None:
    params = {"k": 3, "start_from": "kmeans/a@1", "start_data": "new"}

    form = make_start_form("kmeans/b", params, checkpoint_id=2, epoch=1)

    assert ("kmeans/b@2", ["k"]) == (form.start_from, [field.name for field in form.fields])
