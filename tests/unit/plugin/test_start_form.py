"""Which fields the form has that starts a run from a checkpoint."""

from __future__ import annotations

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


def test_checkpoint_that_the_origin_started_from_is_not_asked_for_again() -> None:
    form = make_start_form("kmeans/b", {"k": 3, "start_from": "kmeans/a@1"}, checkpoint_id=2, epoch=1)

    assert ("kmeans/b@2", ["k"]) == (form.start_from, [field.name for field in form.fields])
