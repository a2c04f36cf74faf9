"""Do the ready iterations give what scikit-learn and networkx give, on both runners, and always the same bits?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

from iteration_lib import InputError
from iteration_lib.errors import OperatorFailedError
from iteration_lib.library.datasets import write_breast_cancer, write_digits, write_les_miserables
from iteration_lib.library.kmeans import KMeansParams, kmeans
from iteration_lib.library.logistic_regression import LogisticRegressionParams, logistic_regression
from iteration_lib.library.pagerank import PageRankParams, pagerank
from iteration_lib.model.iteration import Iteration
from iteration_lib.runner.local import LocalRunner
from iteration_lib.runner.seam import Runner
from iteration_lib.state.digest import state_digest
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import SavedStream
from tests.library_loop import Loop, Outcome

Run = Callable[..., Outcome]


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Return what runs an iteration with parameters, in the folder `run`."""
    opened: list[Runner] = []

    def run_iteration(iteration: Iteration, params: Any, *, parallelism: int = 3, folder: str = "run") -> Outcome:
        location = StateLocation(str(tmp_path / folder))
        runner: Runner = LocalRunner(location, max_buckets=16, parallelism=parallelism)
        if request.param == "spark":
            from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415  (the other half needs no Spark)

            spark = request.getfixturevalue("spark")
            runner = SparkRunner(spark, location, max_buckets=16, parallelism=parallelism)
        opened.append(runner)
        return Loop(runner, iteration, params).run()

    yield run_iteration
    for runner in opened:
        runner.close()


@pytest.fixture
def spark_run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Return what runs an iteration on DataFrames, in the folder `run`."""
    from iteration_lib.runner.spark import SparkRunner  # noqa: PLC0415  (the other half needs no Spark)

    opened: list[Runner] = []

    def run_iteration(iteration: Iteration, params: Any, *, parallelism: int = 3, folder: str = "run") -> Outcome:
        location = StateLocation(str(tmp_path / folder))
        spark = request.getfixturevalue("spark")
        runner = SparkRunner(spark, location, max_buckets=16, parallelism=parallelism)
        opened.append(runner)
        return Loop(runner, iteration, params).run()

    yield run_iteration
    for runner in opened:
        runner.close()


def model(root: Path, stream: SavedStream) -> dict[str, Any]:
    table = pa.concat_tables([pq.read_table(root / file.path) for file in stream.files])
    return {name: np.array(column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True)}


def write_points(path: Path, features: list[list[float]], **columns: Any) -> str:
    pq.write_table(pa.table({"features": features, **columns}), path)
    return str(path)


# K-means


def test_kmeans_agrees_with_lloyd_after_the_same_number_of_passes(run: Run, tmp_path: Path) -> None:
    digits = load_digits().data
    first = digits[:10]
    centres = write_points(tmp_path / "first.parquet", first.tolist())
    params = KMeansParams(
        input=str(write_digits(tmp_path / "digits.parquet")), k=10, tolerance=0.0, initial_centres=centres
    )

    outcome = run(kmeans, params)

    expected = KMeans(10, init=first, n_init=1, algorithm="lloyd", tol=0.0, max_iter=outcome.epochs).fit(digits)
    found = model(tmp_path / "run", outcome.outputs["model"])["centre"]
    assert 5 < outcome.epochs < 100
    assert expected.cluster_centers_ == pytest.approx(found, abs=1e-6)
    assert expected.inertia_ == pytest.approx(outcome.metrics[-1]["inertia"], rel=1e-9)
    assert ([0], 0.0) == (outcome.records[-1:], outcome.metrics[-1]["shift"])


@pytest.mark.parametrize("offset", [1e6, 1e8, 1e9])
def test_kmeans_agrees_with_lloyd_far_from_0(run: Run, tmp_path: Path, offset: float) -> None:
    """Times and coordinates are such numbers: their squares leave no digits for the distances."""
    draw = np.random.default_rng(0)
    points = np.vstack([draw.normal(at, 0.3, size=(100, 2)) for at in ((0, 0), (3, 0), (0, 3))]) + offset
    start = points[[0, 100, 200]]
    given = write_points(tmp_path / "points.parquet", points.tolist())
    centres = write_points(tmp_path / "start.parquet", start.tolist())

    outcome = run(kmeans, KMeansParams(input=given, k=3, tolerance=0.0, initial_centres=centres))

    expected = KMeans(3, init=start, n_init=1, algorithm="lloyd", tol=0.0, max_iter=outcome.epochs).fit(points)
    found = model(tmp_path / "run", outcome.outputs["model"])["centre"]
    assert expected.cluster_centers_ - offset == pytest.approx(np.asarray(found) - offset, abs=1e-5)
    assert expected.inertia_ == pytest.approx(outcome.metrics[-1]["inertia"], rel=1e-5)


def test_kmeans_agrees_with_lloyd_half_way(run: Run, tmp_path: Path) -> None:
    digits = load_digits().data
    centres = write_points(tmp_path / "first.parquet", digits[:10].tolist())
    params = KMeansParams(
        input=str(write_digits(tmp_path / "digits.parquet")), k=10, max_epochs=3, tolerance=0.0, initial_centres=centres
    )

    found = model(tmp_path / "run", run(kmeans, params).outputs["model"])["centre"]

    moved = digits[:10]
    for _ in range(3):
        nearest = ((digits[:, np.newaxis] - moved) ** 2).sum(axis=2).argmin(axis=1)
        moved = np.array([digits[nearest == k].mean(axis=0) for k in range(10)])
    assert moved == pytest.approx(found, abs=1e-6)


def test_kmeans_gives_the_same_bits_for_equal_parameters_whatever_the_parallelism(run: Run, tmp_path: Path) -> None:
    path = str(write_digits(tmp_path / "digits.parquet"))

    digests = [
        state_digest(
            run(kmeans, KMeansParams(input=path, k=10, seed=seed), parallelism=p, folder=f"{seed}-{p}").outputs
        )
        for seed, p in ((1, 1), (1, 5), (2, 1))
    ]

    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_kmeans_starts_from_distinct_points_and_leaves_an_empty_centre_where_it_is(run: Run, tmp_path: Path) -> None:
    path = write_points(tmp_path / "points.parquet", [[0.0], [0.0], [0.0], [1.0], [1.0], [9.0]])
    far = write_points(tmp_path / "far.parquet", [[0.0], [9.0], [100.0]])

    drawn = model(tmp_path / "a", run(kmeans, KMeansParams(input=path, k=3), folder="a").outputs["model"])
    given = run(kmeans, KMeansParams(input=path, k=3, initial_centres=far), folder="b")

    assert [0.0, 1.0, 9.0] == sorted(drawn["centre"].ravel())
    assert [0.4, 9.0, 100.0] == pytest.approx(model(tmp_path / "b", given.outputs["model"])["centre"].ravel())


def test_kmeans_takes_numbers_of_any_width(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "points.parquet"
    pq.write_table(pa.table({"features": pa.array([[0], [1], [9]], pa.list_(pa.float32()))}), path)

    outcome = run(kmeans, KMeansParams(input=str(path), k=2))

    assert [0.5, 9.0] == sorted(model(tmp_path / "run", outcome.outputs["model"])["centre"].ravel())


@pytest.mark.parametrize(
    ("features", "k", "message"),
    [
        ([[0.0], [0.0], [1.0]], 3, r"has distinct points: 2, but k is 3"),
        ([[0.0], [float("nan")], [1.0]], 2, r"column 'features' of .*points\.parquet holds NaN"),
        ([[0.0], [float("inf")], [1.0]], 2, r"column 'features' of .*points\.parquet holds NaN"),
    ],
)
def test_kmeans_refuses_bad_points_by_name(
    run: Run, tmp_path: Path, features: list[list[float]], k: int, message: str
) -> None:
    path = write_points(tmp_path / "points.parquet", features)

    with pytest.raises(InputError, match=message):
        run(kmeans, KMeansParams(input=path, k=k))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200])
def test_kmeans_refuses_bad_points_behind_given_centres(run: Run, tmp_path: Path, bad: float) -> None:
    path = write_points(tmp_path / "points.parquet", [[0.0], [bad]])
    first = write_points(tmp_path / "first.parquet", [[0.0]])

    with pytest.raises(InputError, match="column 'features' holds NaN, infinity or what is too large to be squared"):
        run(kmeans, KMeansParams(input=path, k=1, initial_centres=first))


# Logistic regression


@pytest.mark.parametrize("l2", [0.01, 1e-6])
def test_logistic_regression_reaches_the_optimum(run: Run, tmp_path: Path, l2: float) -> None:
    path = write_breast_cancer(tmp_path / "cancer.parquet")
    data = load_breast_cancer()
    x, y = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0), data.target

    outcome = run(logistic_regression, LogisticRegressionParams(input=str(path), l2=l2))

    found = model(tmp_path / "run", outcome.outputs["model"])
    best = LogisticRegression(C=1 / (len(x) * l2), tol=1e-12, max_iter=100_000, solver="newton-cholesky").fit(x, y)

    def loss(w: Any, b: float) -> float:
        score = x @ w + b
        return float(np.logaddexp(0, np.where(y > 0, -score, score)).mean() + l2 / 2 * w @ w)

    optimum = loss(best.coef_[0], best.intercept_[0])
    reached = loss(found["coefficients"][0], found["intercept"][0])
    assert reached == pytest.approx(optimum, abs=1e-6)
    assert reached == pytest.approx(found["loss"][0], rel=1e-12)
    assert outcome.epochs < 30
    assert 0 == outcome.records[-1]


def test_logistic_regression_gives_the_same_bits_whatever_the_parallelism(run: Run, tmp_path: Path) -> None:
    params = LogisticRegressionParams(input=str(write_breast_cancer(tmp_path / "cancer.parquet")))

    digests = {state_digest(run(logistic_regression, params, parallelism=p, folder=f"{p}").outputs) for p in (1, 4)}

    assert 1 == len(digests)


def test_logistic_regression_survives_classes_that_a_line_separates(run: Run, tmp_path: Path) -> None:
    """Without a penalty the coefficients have no optimum; the loss goes down all the same, and stays finite."""
    path = write_points(tmp_path / "points.parquet", [[-2.0], [-1.0], [1.0], [2.0]], label=[0, 0, 1, 1])

    outcome = run(logistic_regression, LogisticRegressionParams(input=path, l2=0.0, max_epochs=20))

    losses = [metrics["loss"] for metrics in outcome.metrics]
    assert losses[-1] < 1e-4
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("features", "label", "message"),
    [
        ([[0.0], [1.0]], [0, 2], r"column 'label' of .*points\.parquet holds 2; a label is 0 or 1"),
        ([[0.0], [float("nan")]], [0, 1], r"column 'features' of .*points\.parquet holds NaN"),
    ],
)
def test_logistic_regression_refuses_bad_points_by_name(
    run: Run, tmp_path: Path, features: list[list[float]], label: list[int], message: str
) -> None:
    path = write_points(tmp_path / "points.parquet", features, label=label)

    with pytest.raises(InputError, match=message):
        run(logistic_regression, LogisticRegressionParams(input=path))


# PageRank


def ranks_of(root: Path, outcome: Outcome) -> dict[Any, float]:
    found = model(root, outcome.outputs["ranks"])
    return dict(zip(found["id"].tolist(), found["rank"].tolist(), strict=True))


@pytest.mark.spark
def test_pagerank_agrees_with_networkx_on_les_miserables(spark_run: Run, tmp_path: Path) -> None:
    path = write_les_miserables(tmp_path / "edges.parquet")

    found = spark_run(pagerank, PageRankParams(input=str(path), tolerance=1e-4))

    expected = nx.pagerank(nx.les_miserables_graph(), weight=None, tol=1e-4)  # so many passes, and no more
    assert expected == pytest.approx(ranks_of(tmp_path / "run", found), abs=1e-8)
    assert 0 == found.records[-1]


@pytest.mark.spark
def test_pagerank_refuses_an_edge_without_an_end(spark_run: Run, tmp_path: Path) -> None:
    """Its rank would go nowhere."""
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"src": ["a", "b", "c"], "dst": ["b", "a", None]}), path)

    with pytest.raises(OperatorFailedError, match="column src or dst of the edges holds nulls; drop such rows"):
        spark_run(pagerank, PageRankParams(input=str(path)))


@pytest.mark.spark
def test_pagerank_spreads_the_rank_of_dangling_nodes(spark_run: Run, tmp_path: Path) -> None:
    graph = nx.DiGraph([(1, 2), (1, 3), (2, 3), (4, 3), (4, 5)])  # 3 and 5 lead nowhere, nothing leads to 1 and 4
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"src": [s for s, _ in graph.edges], "dst": [d for _, d in graph.edges]}), path)

    found = ranks_of(tmp_path / "run", spark_run(pagerank, PageRankParams(input=str(path), tolerance=1e-6)))

    assert nx.pagerank(graph, tol=1e-6) == pytest.approx(found, abs=1e-12)
    assert 1.0 == pytest.approx(sum(found.values()))


@pytest.mark.spark
def test_pagerank_gives_the_same_bits_however_its_edges_are_spread(spark_run: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    edges = np.unique(draw.integers(0, 300, size=(3000, 2)), axis=0)
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts"
    pq.write_table(pa.table({"src": edges[:, 0], "dst": edges[:, 1]}), whole)
    parts.mkdir()
    for number, part in enumerate(np.array_split(draw.permutation(edges), 7)):
        pq.write_table(pa.table({"src": part[:, 0], "dst": part[:, 1]}), parts / f"{number}.parquet")

    digests = {
        state_digest(spark_run(pagerank, PageRankParams(input=str(path), max_epochs=3), folder=path.stem).outputs)
        for path in (whole, parts)
    }

    assert 1 == len(digests)


# Data sets


def test_data_sets_are_written_once(tmp_path: Path) -> None:
    for write, rows, columns in (
        (write_digits, 1797, ["features", "label"]),
        (write_breast_cancer, 569, ["features", "label"]),
        (write_les_miserables, 508, ["src", "dst"]),
    ):
        path = tmp_path / "data" / f"{write.__name__}.parquet"

        first = write(path).stat().st_mtime_ns

        assert first == write(path).stat().st_mtime_ns
        assert (rows, columns) == (pq.read_metadata(path).num_rows, pq.read_schema(path).names)
    assert 3 == len(list((tmp_path / "data").iterdir()))
