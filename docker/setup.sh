#!/bin/sh
# Runs before Airflow's processes do: writes the logins, makes the bucket, and brings both databases to this version.
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
python - <<'PROGRAM'
import json, os
from sqlalchemy import create_engine, text
pages = json.loads(os.environ["AIRFLOW_CONN_ITERATION_STORE_READ"])
with create_engine(os.environ["ITERATION_STORE_URL"]).begin() as store:
    if not store.scalar(text("SELECT true FROM pg_roles WHERE rolname = :login"), pages):
        store.execute(text(f"CREATE ROLE {pages['login']} LOGIN IN ROLE iteration_reader"))
    store.execute(text(f"ALTER ROLE {pages['login']} PASSWORD :password"), pages)
PROGRAM
