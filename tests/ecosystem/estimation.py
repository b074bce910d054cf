"""What SciPy and scikit-learn estimate from tensors: by resampling, search and fits, also in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from consumers import Data


def resampled(d: Data) -> Any:
    from scipy import stats

    def mean(x: Any, axis: int) -> Any:
        return d.xp.mean(x, axis=axis)

    def difference(x: Any, y: Any, axis: int) -> Any:
        return mean(x, axis) - mean(y, axis)

    result = stats.bootstrap(
        (d.y,), mean, n_resamples=200, batch=50, method="percentile", rng=np.random.default_rng(1)
    )
    test = stats.permutation_test(
        (d.y[:7], d.y[7:]), difference, vectorized=True, n_resamples=100, rng=np.random.default_rng(2)
    )
    return (
        result.confidence_interval.low,
        result.confidence_interval.high,
        result.standard_error,
        test.statistic,
        test.pvalue,
    )


def summaries(d: Data) -> Any:
    from scipy import stats

    positive = d.xp.abs(d.X) + 0.5
    return (
        stats.hmean(positive, axis=0),
        stats.pmean(positive, 3, axis=1),
        stats.gstd(positive, axis=0),
        stats.circmean(d.X, axis=0),
        stats.circstd(d.X, axis=1),
        stats.gzscore(positive),
        stats.tmean(d.y, (0.0, 10.0)),
    )


def extremes(d: Data) -> Any:
    from scipy.optimize import elementwise

    def bowl(x: Any, c: Any) -> Any:
        return (x - c) ** 2 + 1.0

    c = d.array([0.5, 2.0])
    bracket = elementwise.bracket_minimum(bowl, d.array([1.0, 1.0]), args=(c,))
    result = elementwise.find_minimum(bowl, bracket.bracket, args=(c,))
    return result.f_x, d.xp.round(result.x * 100) / 100


def rigid_motions(d: Data) -> Any:
    from scipy.spatial.transform import RigidTransform, Rotation

    moved = RigidTransform.from_components(d.X[:2, :3], Rotation.from_rotvec(d.X[:2, 1:]))
    return moved.apply(d.X[2:4, :3]), (moved * moved.inv()).as_matrix(), moved.as_exp_coords()


def in_threads(d: Data) -> Any:
    """Threads write their columns of one result, as joblib's do."""
    from sklearn.metrics import pairwise

    def product(x: Any, y: Any) -> Any:
        return d.xp.sum(x * y)

    rows = d.xp.concat([d.X, -d.X])
    return (
        pairwise.pairwise_kernels(rows, metric="rbf", n_jobs=3),
        pairwise.pairwise_distances(rows, metric="euclidean", n_jobs=3) + 1.0,
        pairwise.pairwise_kernels(d.X[:5, :], metric=product, n_jobs=2),
    )


def percentiles(d: Data) -> Any:
    from sklearn.utils.stats import _weighted_percentile

    return (
        _weighted_percentile(d.y, d.array(np.arange(1, 16)), 30),
        _weighted_percentile(d.X, d.array(np.ones(15)), 50, average=True),
    )


def classes(d: Data) -> Any:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(solver="lbfgs", tol=1e-8).fit(d.X, d.labels)
    return d.xp.round(fitted.predict_proba(d.X) * 100) / 100, fitted.predict(d.X)


def counts(d: Data) -> Any:
    from sklearn.linear_model import PoissonRegressor

    fitted = PoissonRegressor(solver="lbfgs", tol=1e-8).fit(d.X, d.xp.abs(d.y))
    return d.xp.round(fitted.predict(d.X) * 10) / 10


def approximated_kernels(d: Data) -> Any:
    from sklearn.kernel_approximation import Nystroem

    result = Nystroem(n_components=15, gamma=0.1, random_state=0).fit(d.X).transform(d.X)
    return result @ result.T


CASES: dict[str, Callable[[Data], Any]] = {
    "resampled": resampled,
    "summaries": summaries,
    "extremes": extremes,
    "rigid_motions": rigid_motions,
    "in_threads": in_threads,
    "percentiles": percentiles,
    "classes": classes,
    "counts": counts,
    "approximated_kernels": approximated_kernels,
}
