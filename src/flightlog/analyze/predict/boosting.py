"""Quantile gradient boosting by scikit-learn; its trees as plain numbers, kept as JSON and evaluated without
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from flightlog.core.errors import FlightlogError, MissingExtra

LEAF = -1


class Tree(Struct, frozen=True, array_like=True):
    """One tree, a list for each property of its nodes; node 0 is the root, and children come after their
    parent.
    """

    column: list[int]
    """Which column a node looks at; `LEAF` where there is nothing to ask."""
    threshold: list[float]
    """Up to it the left child is next, beyond it the right one."""
    left: list[int]
    right: list[int]
    missing_left: list[bool]
    """Where a row goes that has no number there."""
    value: list[float]
    """What a leaf adds."""

    def problem(self, columns: int) -> str | None:
        """What is wrong with it, if anything is: a tree without any problem always comes to an end."""
        n = len(self.column)
        if not n or any(
            len(each) != n for each in (self.threshold, self.left, self.right, self.missing_left, self.value)
        ):
            return "a tree whose lists differ in length"
        for node, column in enumerate(self.column):
            inner = node < self.left[node] < n and node < self.right[node] < n and 0 <= column < columns
            if column != LEAF and not inner:
                return "a tree that points outside itself"
        return None


class Trees(Struct, frozen=True):
    """Trees that are added up."""

    start: float
    trees: list[Tree]

    def problem(self, columns: int) -> str | None:
        """What is wrong with any of them."""
        return next((found for tree in self.trees if (found := tree.problem(columns)) is not None), None)

    def evaluate(self, row: Sequence[float]) -> float:
        """The value of a row with a number, or NaN, for each column."""
        total = self.start
        for tree in self.trees:
            columns, thresholds, left, right = tree.column, tree.threshold, tree.left, tree.right
            node = 0
            while (column := columns[node]) != LEAF:
                x = row[column]
                if x <= thresholds[node]:
                    node = left[node]
                elif x > thresholds[node]:
                    node = right[node]
                else:  # NaN is neither
                    node = left[node] if tree.missing_left[node] else right[node]
            total += tree.value[node]
        return total


INSTALL = "pip install 'flightlog[ml]'"
RATE = 0.1
MOST = 10_000
"""So many examples are learnt from, the newest: more add time and little else."""


class BoostingFailed(FlightlogError):  # noqa: N818 - reads as what happened
    """scikit-learn is there, and its trees could not be read."""


def sklearn_version() -> str:
    """The version of scikit-learn; a `MissingExtra` where there is none. Does not import it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("scikit-learn")
    except PackageNotFoundError:
        raise MissingExtra(
            f"predictions by arguments need scikit-learn: {INSTALL}. Without it, tasks of one name are all "
            "alike"
        ) from None


class TreeShape(NamedTuple):
    """How much trees may learn."""

    rounds: int
    leaves: int
    least: int
    """Examples in a leaf, at least."""


Fit = Callable[[Sequence[Sequence[float]], Sequence[float], float, TreeShape], Trees]
"""Makes trees of rows, values, a quantile and a shape."""


class Boosting(NamedTuple):
    """A library that learns."""

    version: str
    fit: Fit


def find_boosting() -> Boosting:
    """scikit-learn, which is not imported before it learns; a `MissingExtra` where there is none."""
    return Boosting(sklearn_version(), fit_quantile)


def fit_quantile(
    rows: Sequence[Sequence[float]], values: Sequence[float], q: float, shape: TreeShape
) -> Trees:
    """Trees that give the quantile `q` of what follows rows like these; the same input gives the same trees.

    On one thread: on few examples, threads spend their time waiting for one another.
    """
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it comes with scikit-learn

    x, y = np.asarray(rows, dtype=np.float64), np.asarray(values, dtype=np.float64)
    model = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=q,
        max_iter=shape.rounds,
        learning_rate=RATE,
        max_leaf_nodes=shape.leaves,
        min_samples_leaf=shape.least,
        early_stopping=False,
        random_state=0,
    )
    with threadpool_limits(1, user_api="openmp"):
        model.fit(x, y)
        trees = _export(model)
        some = x[:: max(1, len(x) // 50)]
        same = np.allclose(model.predict(some), [trees.evaluate(row) for row in some.tolist()], atol=1e-9)
    if not same:
        raise BoostingFailed(
            f"scikit-learn {sklearn_version()} keeps its trees in a form that is not known here"
        )
    return trees


def _export(model: Any) -> Trees:
    """The trees of a model. They stand in attributes that are no promise of the library's: see the check
    above.
    """
    try:
        start = float(model._baseline_prediction.ravel()[0])
        return Trees(start, [_tree(predictor.nodes) for (predictor,) in model._predictors])
    except (AttributeError, ValueError, IndexError, TypeError) as error:
        raise BoostingFailed(
            f"the trees of scikit-learn {sklearn_version()} cannot be read: {error}"
        ) from error


def _tree(nodes: Any) -> Tree:
    leaf = nodes["is_leaf"].astype(bool)
    threshold = nodes["num_threshold"].copy()
    threshold[leaf] = 0.0
    # A split of "some number" from "none" has an infinite threshold, which JSON cannot hold.
    threshold = threshold.clip(-1.7e308, 1.7e308)
    column = nodes["feature_idx"].astype(int)
    column[leaf] = LEAF
    return Tree(
        column.tolist(),
        threshold.tolist(),
        nodes["left"].astype(int).tolist(),
        nodes["right"].astype(int).tolist(),
        nodes["missing_go_to_left"].astype(bool).tolist(),
        nodes["value"].tolist(),
    )
