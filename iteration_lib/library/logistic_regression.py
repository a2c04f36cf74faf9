"""Which linear rule tells label 1 from label 0 best? Logistic regression, by Newton's method with step control.

Minimises mean log loss + l2/2 * |w|^2 over the coefficients w and a free intercept (scikit-learn's
`LogisticRegression(C=1 / (n * l2))` has the same optimum). Each epoch evaluates one point: a Newton step that lowers
the loss is kept and the next one proposed; one that does not is halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iteration_lib import InputError, Iteration, Metrics, parquet
from iteration_lib.model.source import ParquetSource

Floats = npt.NDArray[np.float64]
Block = dict[str, npt.NDArray[Any]]  # Any: each column has the type of its data


@dataclass(frozen=True, slots=True)
class LogisticRegressionParams:
    """Parameters of `logistic_regression`.

    input: Parquet with `features` (array of double, the same length in every row) and `label` (0 or 1).
    tolerance: stop when no partial derivative of the loss is larger than this.
    """

    input: str
    max_epochs: int = 50
    l2: float = 0.01
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.l2 < 0 or self.tolerance < 0:
            raise ValueError(f"parameters 'l2' ({self.l2}) and 'tolerance' ({self.tolerance}) are not negative")


logistic_regression = Iteration("logistic_regression", params=LogisticRegressionParams)


@logistic_regression.data
def points(params: LogisticRegressionParams) -> ParquetSource:
    """Read the labelled points."""
    return parquet(params.input, columns=["features", "label"])


@logistic_regression.map_buckets(finishes=True)
def width(points: Block, params: LogisticRegressionParams) -> Block:
    """Count the features, and refuse what cannot be learned from."""
    if not np.isfinite(points["features"]).all():
        raise InputError(f"column 'features' of {params.input} holds NaN or infinity; drop such rows")
    strange = np.setdiff1d(points["label"], [0, 1])
    if len(strange):
        raise InputError(f"column 'label' of {params.input} holds {strange[0]}; a label is 0 or 1")
    return {"features": np.array([points["features"].shape[1]])}


@logistic_regression.variable
def weights(width: Block) -> Block:
    """Start at 0: one row with the point to evaluate (the intercept is its last entry) and the best one so far."""
    zero = np.zeros((1, int(width["features"][0]) + 1))
    return {"point": zero, "best": zero, "best_loss": np.array([np.inf]), "step": zero}


@logistic_regression.map_buckets
def derivatives(points: Block, weights: Block) -> Block:
    """Sum a bucket's log loss, its gradient and its Hessian at the point: one row."""
    x = np.column_stack([points["features"], np.ones(len(points["features"]))])
    y = points["label"].astype(np.float64)
    score = x @ weights["point"][0]
    chance = 0.5 * (1.0 + np.tanh(0.5 * score))
    return {
        "count": np.array([len(y)]),
        "loss": np.array([np.logaddexp(0.0, np.where(y > 0, -score, score)).sum()]),
        "gradient": (x.T @ (chance - y))[np.newaxis],
        "hessian": (x.T @ (x * (chance * (1.0 - chance))[:, np.newaxis]))[np.newaxis],
    }


@logistic_regression.operator
def stepped(derivatives: Block, weights: Block, params: LogisticRegressionParams, metrics: Metrics) -> Block:
    """Keep the point if its loss is lower than the best one's and propose Newton's next; else halve the step."""
    point = weights["point"][0]
    penalty = np.full(len(point), params.l2)
    penalty[-1] = 0.0  # the intercept is free
    count = derivatives["count"].sum()
    loss = derivatives["loss"].sum() / count + 0.5 * (penalty * point * point).sum()
    metrics.report("loss", loss)
    if loss > weights["best_loss"][0]:
        step = 0.5 * weights["step"][0]
        best, best_loss = weights["best"][0], weights["best_loss"][0]
    else:
        gradient = derivatives["gradient"].sum(axis=0) / count + penalty * point
        hessian = derivatives["hessian"].sum(axis=0) / count + np.diag(penalty)
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        best, best_loss = point, loss
    return {
        "point": (best + step)[np.newaxis],
        "best": best[np.newaxis],
        "best_loss": np.array([best_loss]),
        "step": step[np.newaxis],
    }


@logistic_regression.operator
def still_sloping(derivatives: Block, weights: Block, params: LogisticRegressionParams, metrics: Metrics) -> Block:
    """Name the entries in which the loss still has a slope; none means that the run terminates."""
    point = weights["point"][0]
    penalty = np.full(len(point), params.l2)
    penalty[-1] = 0.0
    gradient = derivatives["gradient"].sum(axis=0) / derivatives["count"].sum() + penalty * point
    metrics.report("slope", np.abs(gradient).max())
    return {"entry": np.flatnonzero(np.abs(gradient) > params.tolerance)}


@logistic_regression.operator
def fitted(stepped: Block) -> Block:
    """Return the model: one row with `coefficients`, `intercept` and its `loss`."""
    best = stepped["best"]
    return {"coefficients": best[:, :-1], "intercept": best[:, -1], "loss": stepped["best_loss"]}


logistic_regression.feedback(weights=stepped)
logistic_regression.criteria(still_sloping)
logistic_regression.output(model=fitted)
