"""What SciPy and scikit-learn compute from tensors, beside what they compute from NumPy arrays.

Run as a program, because SciPy reads ``SCIPY_ARRAY_API`` when it is first imported: it takes device types and
prints a JSON object that says of each (device, case) what is wrong, or nothing.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorbus as tb

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))

from error_bounds import assert_within, gamma
from estimation import CASES as ESTIMATION
from hypotheses import CASES as HYPOTHESES

ROUNDINGS = 2**11
"""So many follow each other at most: in sums over the points, and steps of iterations until they agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A small classification and regression problem, as arrays of one library."""

    xp: Any
    X: Any
    y: Any
    labels: Any
    device: Any

    def array(self, values: Any) -> Any:
        """Return floats in the dtype and on the device of the others."""
        return self.xp.asarray(values, dtype=self.X.dtype, device=self.device)


def problem(xp: Any, dtype: str, device: Any) -> Data:
    """Return three clusters of five points, the same at each call."""
    labels = np.repeat([0, 1, 2], 5)
    X = np.random.default_rng(0).normal(size=(15, 4)) + 3.0 * labels[:, None] * [1.0, -1.0, 0.5, 0.0]
    y = X @ [1.0, 2.0, -0.5, 0.25] + 1.0
    floats = [xp.asarray(v.astype(dtype), device=device) for v in (X, y)]
    return Data(xp=xp, X=floats[0], y=floats[1], labels=xp.asarray(labels, device=device), device=device)


def standardized(d: Data) -> Any:
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    scaler = StandardScaler().fit(d.X)
    return scaler.transform(d.X), scaler.scale_, MinMaxScaler().fit_transform(d.X)


def principal_components(d: Data) -> Any:
    from sklearn.decomposition import PCA

    pca = PCA(n_components=2, svd_solver="full").fit(d.X)
    return pca.explained_variance_, pca.inverse_transform(pca.transform(d.X))


def discriminants(d: Data) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    lda = LinearDiscriminantAnalysis().fit(d.X, d.labels)
    return lda.predict(d.X), lda.decision_function(d.X)


def ridge(d: Data) -> Any:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=0.5, solver="svd").fit(d.X, d.y)
    return model.coef_, model.predict(d.X), model.score(d.X, d.y)


def naive_bayes(d: Data) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB().fit(d.X, d.labels).predict_proba(d.X)


def mixture(d: Data) -> Any:
    from sklearn.mixture import GaussianMixture

    fitted = GaussianMixture(3, covariance_type="diag", random_state=0, init_params="random_from_data").fit(
        d.X
    )
    return fitted.means_, fitted.predict(d.X)


def polynomials(d: Data) -> Any:
    from sklearn.preprocessing import Binarizer, PolynomialFeatures

    return PolynomialFeatures(2).fit_transform(d.X), Binarizer(threshold=1.0).fit_transform(d.X)


def scores(d: Data) -> Any:
    from sklearn import metrics

    guess, other = d.y + 0.5 * d.X[:, 0], d.xp.flip(d.labels)
    return (
        metrics.mean_squared_error(d.y, guess),
        metrics.r2_score(d.y, guess),
        metrics.median_absolute_error(d.y[:14], guess[:14]),
        metrics.accuracy_score(d.labels, other),
        metrics.f1_score(d.labels, other, average="macro"),
        metrics.confusion_matrix(d.labels, other),
    )


def distances(d: Data) -> Any:
    from sklearn.metrics import pairwise

    return (
        pairwise.rbf_kernel(d.X),
        pairwise.euclidean_distances(d.X, d.X[:3] + 1.0),
        pairwise.cosine_similarity(d.X),
    )


def special(d: Data) -> Any:
    from scipy import special

    return special.logsumexp(d.X * 100, axis=1), special.softmax(d.X, axis=0), special.log_softmax(d.X)


def statistics(d: Data) -> Any:
    from scipy import stats
    from scipy.cluster import vq

    return (
        vq.whiten(d.X),
        stats.sem(d.X),
        stats.zscore(d.X),
        stats.skew(d.X, axis=0),
        stats.kurtosis(d.X, axis=None),
        stats.variation(d.X, axis=1),
        stats.gmean(d.xp.exp(d.X), axis=0),
        stats.moment(d.X, 3),
        stats.rankdata(d.y),
        stats.quantile(d.y, 0.3),
    )


def transforms(d: Data) -> Any:
    from scipy import fft

    half = fft.rfft(d.X, axis=0)
    return half, fft.irfft(half, n=15, axis=0), fft.fft2(d.X), fft.fftshift(d.X), fft.hfft(half, axis=0)


def signals(d: Data) -> Any:
    from scipy import signal

    return (
        signal.windows.hann(9, xp=d.xp, device=d.device),
        signal.savgol_coeffs(5, 2, xp=d.xp, device=d.device),
        signal.freqz(d.array([1.0, 0.5, 0.25]), worN=d.array([0.0, 0.5, 1.0]))[1],
        signal.fftconvolve(d.X, d.X[:3, :2]),
        signal.resample(d.X, 30),
        signal.hilbert(d.y),
    )


def calculus(d: Data) -> Any:
    from scipy import differentiate, integrate

    xp = d.xp
    result = differentiate.derivative(xp.exp, d.array([0.0, 0.5]))
    return (
        integrate.trapezoid(d.X, axis=0),
        integrate.cumulative_trapezoid(d.X, axis=0),
        result.df,
        integrate.cubature(lambda x: xp.cos(x[:, 0]), d.array([0.0]), d.array([1.0])).estimate,
    )


def roots(d: Data) -> Any:
    from scipy.optimize import elementwise

    def cubic(x: Any, c: Any) -> Any:
        return x**3 - c

    result = elementwise.find_root(
        cubic, (d.array([0.0, 0.0]), d.array([4.0, 4.0])), args=(d.array([2.0, 27.0]),)
    )
    return result.x


def rotations(d: Data) -> Any:
    from scipy.spatial.transform import Rotation

    turned = Rotation.from_rotvec(d.X[:2, :3])
    return turned.apply(d.X[2:4, 1:]), turned.as_matrix(), (turned * turned.inv()).magnitude() + 1.0


CASES: dict[str, Callable[[Data], Any]] = {
    "standardized": standardized,
    "principal_components": principal_components,
    "discriminants": discriminants,
    "ridge": ridge,
    "naive_bayes": naive_bayes,
    "mixture": mixture,
    "polynomials": polynomials,
    "scores": scores,
    "distances": distances,
    "special": special,
    "statistics": statistics,
    "transforms": transforms,
    "signals": signals,
    "calculus": calculus,
    "roots": roots,
    "rotations": rotations,
    **ESTIMATION,
    **HYPOTHESES,
}


def compared(case: Callable[[Data], Any], device: tb.Device) -> str:
    """Return what is wrong with a case on a device: a wrong value, or one that lies elsewhere."""
    dtype = "float64" if tb.float64 in device.properties.dtypes else "float32"
    bound = gamma(ROUNDINGS, dtype)
    tb.set_default_dtype(dtype)
    try:
        with device:  # where SciPy puts what it makes without naming a device
            want, got = case(problem(np, dtype, "cpu")), case(problem(tb, dtype, device))
    except Exception:
        return traceback.format_exc()
    wants, gots = (v if isinstance(v, tuple) else (v,) for v in (want, got))
    for k, (a, b) in enumerate(zip(wants, gots, strict=True)):
        if isinstance(b, tb.Tensor):
            if b.device != device:
                return f"result {k} lies on {b.device}"
            b = b.numpy()
        elif np.ndim(a):
            return f"result {k} is a {type(b).__name__}"
        try:
            assert_within(b, a, bound * (1 + np.abs(a)))
        except AssertionError as error:
            return f"result {k} is\n{b}\nand from NumPy's arrays\n{a}\n{error}"
    return ""


def main() -> None:
    """Print what is wrong with each case on each device that is named."""
    import sklearn

    warnings.simplefilter("ignore")
    with sklearn.config_context(array_api_dispatch=True):
        results = {
            name: {case: compared(run, tb.device(name)) for case, run in CASES.items()}
            for name in sys.argv[1:]
        }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
