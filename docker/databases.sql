-- The first start of an empty Postgres: the store's database beside Airflow's own.
CREATE DATABASE iteration;
