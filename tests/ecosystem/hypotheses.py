"""What SciPy says of hypotheses about tensors: chances come from ``tensorbus.special``, on their device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consumers import Data


def means(d: Data) -> Any:
    from scipy import stats

    one, two = d.X[:8, :], d.X[8:, :]
    first = stats.ttest_ind(one, two)
    return (
        first.statistic,
        first.pvalue,
        stats.ttest_ind(one, two, equal_var=False).pvalue,
        stats.ttest_1samp(d.y, 0.5).pvalue,
        stats.ttest_rel(d.X[:, 0], d.X[:, 1]).pvalue,
    )


def spreads_and_shapes(d: Data) -> Any:
    from scipy import stats

    return (
        stats.bartlett(d.X[:, 0], d.X[:, 1]).pvalue,
        stats.normaltest(d.X, axis=0).pvalue,
        stats.skewtest(d.X, axis=0).pvalue,
        stats.jarque_bera(d.y).pvalue,
    )


def ranks(d: Data) -> Any:
    from scipy import stats

    columns = [d.X[:, k] for k in range(3)]
    return (
        stats.kruskal(*columns).pvalue,
        stats.friedmanchisquare(*columns).pvalue,
        stats.mannwhitneyu(columns[0], columns[1], method="asymptotic").pvalue,
    )


def frequencies(d: Data) -> Any:
    from scipy import stats

    counts = d.xp.round(d.xp.abs(d.y) * 10) + 1
    return (
        stats.chisquare(counts).pvalue,
        stats.power_divergence(counts, lambda_="log-likelihood").pvalue,
        stats.combine_pvalues(d.array([0.1, 0.02, 0.3])).pvalue,
        stats.combine_pvalues(d.array([0.1, 0.02, 0.3]), method="stouffer").pvalue,
        stats.entropy(counts),
    )


def correlations(d: Data) -> Any:
    from scipy import stats

    result = stats.pearsonr(d.X[:, 0], d.y)
    return result.statistic, result.pvalue + 1.0


def chances(d: Data) -> Any:
    from scipy import special

    positive = d.xp.abs(d.X) + 0.5
    return (
        special.gammaincc(positive, positive + 1.0),
        special.chdtr(positive, d.y[:, None] ** 2),
        special.stdtr(positive, d.X),
        special.betainc(positive, positive + 1.0, special.expit(d.X)),
        special.ndtri(special.ndtr(d.X / 4)),
        special.log_ndtr(d.X),
        special.i0(d.X) / special.i0(d.X / 2),
        special.zeta(positive + 1.0, positive),
        special.gammaln(positive),
        special.rel_entr(positive, positive + 1.0),
    )


CASES: dict[str, Callable[[Data], Any]] = {
    "means": means,
    "spreads_and_shapes": spreads_and_shapes,
    "ranks": ranks,
    "frequencies": frequencies,
    "correlations": correlations,
    "chances": chances,
}
