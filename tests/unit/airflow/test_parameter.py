"""What does a run get of the trigger form?"""

from __future__ import annotations

from iteration_lib.airflow.parameter import read_form

DEFAULTS = {"input": "/data/{{ ds }}", "k": 3, "start_from": None}
RENDERED = {"input": "/data/2026-01-01"}


def test_template_that_was_left_alone_is_rendered_and_where_to_start_is_no_parameter() -> None:
    form = {"input": "/data/{{ ds }}", "k": 5, "start_from": "nightly@3", "start_data": "new"}

    assert {"input": "/data/2026-01-01", "k": 5} == read_form(form, defaults=DEFAULTS, rendered=RENDERED)


def test_what_a_person_types_is_never_rendered() -> None:
    form = {"input": "/{{ var.value.secret }}", "k": 3, "start_from": None}

    assert {"input": "/{{ var.value.secret }}", "k": 3} == read_form(form, defaults=DEFAULTS, rendered=RENDERED)


def test_parameter_that_the_dag_does_not_have_stays_for_the_iteration_to_refuse() -> None:
    assert {"kk": 3} == read_form({"kk": 3}, defaults=DEFAULTS, rendered=RENDERED)
