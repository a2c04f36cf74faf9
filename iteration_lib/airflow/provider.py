"""What does this package tell Airflow about itself?"""

from __future__ import annotations


def get_provider_info() -> dict[str, object]:
    """Return the provider's description: its connection type and its section of Airflow's configuration."""
    return {
        "package-name": "iteration-lib",
        "name": "Iterations",
        "description": "Durable iterations on Spark, driven by Airflow.",
        "connection-types": [
            {
                "connection-type": "iteration_store",
                "hook-class-name": "iteration_lib.airflow.hook.IterationStoreHook",
                "hook-name": "Iteration store",
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {"schema": "Database", "login": "User"},
                    "placeholders": {"host": "postgres.example.org", "port": "5432", "schema": "iteration"},
                },
            }
        ],
        "config": {
            "iteration": {
                "description": "Where iterations keep their metadata and their state, and where they are seen.",
                "options": {
                    "store_conn_id": {
                        "description": "The connection that leads to the iteration store, a Postgres database. "
                        "Where none is named here and there is no iteration_store, ITERATION_STORE_URL is used.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "iteration_store",
                    },
                    "store_read_conn_id": {
                        "description": "The connection by which Airflow's pages read the store; its login needs no "
                        "more than the database role iteration_reader. Empty: the one of store_conn_id, for reading "
                        "alone.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "iteration_store_read",
                        "default": "",
                    },
                    "state_uri": {
                        "description": "Where state files and outputs go: a folder that every machine of the "
                        "cluster sees, or the address of an object store. Empty: ITERATION_STATE_URI is used.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "s3://models/iterations",
                        "default": "",
                    },
                    "spark_history_url": {
                        "description": "The address of Spark's history server, to which the link 'Spark UI' of a task "
                        "leads once the task has ended. Empty: it has no such link then.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "http://history.example.org:18080",
                        "default": "",
                    },
                },
            }
        },
    }
