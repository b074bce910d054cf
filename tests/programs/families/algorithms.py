"""Small numeric algorithms: linear algebra, statistics, dynamics, signals."""

from __future__ import annotations

import tensorbus as tb
from tensorbus import linalg

from program import Family

program = Family(__name__)


def spd(n):
    a = tb.reshape(tb.arange(float(n * n)), (n, n)) / n
    return a @ a.T / n + tb.eye(n) * n


@program
def power_iteration():
    def fn(a, steps):
        v = tb.ones(a.shape[0])
        for _ in range(steps):
            v = a @ v
            v = v / linalg.vector_norm(v)
        return v @ a @ v, v

    return fn, [(spd(3), 4), (spd(2), 4), (spd(3) * 2, 4)]


@program
def conjugate_gradient():
    def fn(a, b, steps):
        x, r = tb.zeros_like(b), b
        p, rr = r, (r * r).sum()
        for _ in range(steps):
            ap = a @ p
            alpha = rr / (p * ap).sum()
            x = x + alpha * p
            r = r - alpha * ap
            new = (r * r).sum()
            p, rr = r + (new / rr) * p, new
        return x

    return fn, [(spd(4), tb.ones(4), 2), (spd(4), tb.arange(4.0), 2), (spd(3), tb.ones(3), 1)]


@program
def k_means_step():
    def fn(points, centers):
        distances = tb.square(points[:, None] - centers[None]).sum(axis=-1)
        nearest = distances.argmin(axis=1)
        member = tb.cast(nearest[:, None] == tb.arange(centers.shape[0])[None], tb.float32)
        counts = tb.maximum(member.sum(axis=0), 1.0)
        return member.T @ points / counts[:, None], nearest

    def calls():
        points = tb.asarray([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0], [6.0, 5.0]])
        centers = tb.asarray([[0.0, 0.0], [1.0, 1.0]])
        for _ in range(3):
            centers, _ = yield (points, centers)
        yield (points[:3], centers)

    return fn, calls()


@program(dtypes=("complex64",))
def fft_filter():
    def fn(x, keep):
        spectrum = tb.fft.rfft(x)
        mask = tb.arange(spectrum.shape[0]) < keep
        return tb.fft.irfft(spectrum * mask, n=x.shape[0])

    x = tb.asarray([1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    return fn, [(x, 2), (x, 3), (x[:6], 2)]


@program
def regression_by_normal_equations():
    def fn(x, y, ridge=0.0):
        design = tb.concat([tb.ones((x.shape[0], 1)), x[:, None]], axis=1)
        w = linalg.solve(design.T @ design + ridge * tb.eye(2), design.T @ y)
        return w, y - design @ w

    x = tb.arange(4.0)
    return fn, [(x, 2 * x + 1), (x, x * x), (x[:3], tb.ones(3), 0.1)]


@program
def regression_by_qr():
    def fn(a, b):
        q, r = linalg.qr(a)
        x = linalg.solve_triangular(r, (q.T @ b)[:, None], upper=True)[:, 0]
        return x, linalg.vector_norm(a @ x - b)

    a = tb.asarray([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    return fn, [(a, tb.asarray([1.0, 3.0, 5.0])), (a, tb.asarray([1.0, 0.0, 2.0])), (a[:2], tb.ones(2))]


@program
def log_density_by_cholesky():
    def fn(x, cov):
        factor = linalg.cholesky(cov)
        z = linalg.solve_triangular(factor, x[:, None], upper=False)[:, 0]
        return -0.5 * (z * z).sum() - tb.log(tb.diagonal(factor)).sum()

    return fn, [(tb.ones(3), spd(3)), (tb.arange(3.0), spd(3)), (tb.ones(2), spd(2))]


@program
def low_rank_by_svd():
    def fn(a, rank):
        u, s, vh = linalg.svd(a, full_matrices=False)
        return (u[:, :rank] * s[:rank]) @ vh[:rank], s

    a = tb.asarray([[3.0, 1.0, 0.0], [1.0, 3.0, 1.0]])
    return fn, [(a, 1), (a, 2), (a.T, 1)]


@program
def matrix_function_by_eigenvalues():
    def fn(a, function):
        values, vectors = linalg.eigh(a)
        return (vectors * function(values)) @ vectors.T

    return fn, [(spd(3), tb.sqrt), (spd(3), tb.log), (spd(2), lambda v: 1 / v)]


@program
def histogram_and_running_sums():
    def fn(x, bins):
        edges = tb.linspace(0.0, 4.0, bins + 1)
        places = tb.clip(tb.searchsorted(edges, x, side="right") - 1, 0, bins - 1)
        counts = tb.one_hot(places, bins).sum(axis=0)
        return counts, tb.cumulative_sum(counts), edges

    x = tb.asarray([0.25, 1.5, 1.75, 3.5, 4.0])
    return fn, [(x, 4), (x, 2), (x / 2, 4)]


@program
def einsum_contractions():
    def fn(a, b):
        return {
            "matmul": tb.einsum("ij,jk->ik", a, b),
            "trace": tb.einsum("ij,ji->", a, b),
            "outer": tb.einsum("ij,kl->ijkl", a, b).sum(axis=(2, 3)),
            "diagonal": tb.einsum("ii->i", a @ b),
        }

    a = tb.reshape(tb.arange(6.0), (2, 3))
    return fn, [(a, a.T), (a * 2, a.T), (tb.eye(2), tb.ones((2, 2)))]
