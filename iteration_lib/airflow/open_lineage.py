"""What does OpenLineage need among the Spark properties of a task's application, to know whose it is and where to tell?

What the provider puts there for its own operators. Where apache-airflow-providers-openlineage is not installed it logs
that, and nothing is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from airflow.sdk import Context


def inject_lineage(
    properties: Mapping[str, str], context: Context, *, parent_job_info: bool, transport_info: bool
) -> dict[str, str]:
    """Return the properties and what is asked for; what OpenLineage finds set already stays."""
    found = dict(properties)
    if parent_job_info:
        found = inject_parent_job_information_into_spark_properties(found, context)
    if transport_info:
        found = inject_transport_information_into_spark_properties(found, context)
    for name, value in found.items():
        if name not in properties:  # the transport's key may be among them, and the log says what is submitted
            mask_secret(value, name)
    return found
