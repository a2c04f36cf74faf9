#!/bin/sh
# Runs before Airflow's processes do: writes the login, makes the bucket, and brings both databases to this version.
# Repeatable.
set -eu
umask 077
python - <<'PROGRAM'
import json, os, pathlib
path = pathlib.Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
path.write_text(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))

import fsspec
store, folder = fsspec.core.url_to_fs(os.environ["ITERATION_STATE_URI"])
bucket = folder.split("/")[0]
if not store.exists(bucket):
    store.mkdir(bucket)
PROGRAM
airflow db migrate
iteration db upgrade
