"""Small numeric algorithms that go step by step: dynamics, games, filters."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


@program(data_dependent=True)
def newton_until_converged():
    def fn(x, f, limit=20):
        for k in range(limit):
            x = x.detach().requires_grad_()
            y = f(x)
            (slope,) = tb.grad(y, x)
            step = y.detach() / slope
            x = x.detach() - step
            if abs(step) < 1e-4:
                return x, k
        return x, limit

    def cubic(x):
        return x**3 - 2

    return fn, [(tb.asarray(1.0), cubic), (tb.asarray(2.0), cubic), (tb.asarray(1.5), lambda x: x * x - 2)]


@program
def newton_for_square_roots():
    def fn(a, steps=5):
        x = (a + 1) / 2
        for _ in range(steps):
            x = 0.5 * (x + a / x)
        return x

    return fn, [(tb.asarray([1.0, 2.0, 9.0]),), (tb.asarray([4.0]),), (tb.asarray([1.0, 2.0, 9.0]), 2)]


@program
def sinkhorn():
    def fn(cost, steps, epsilon=0.5):
        k = -cost / epsilon
        u, v = tb.zeros(cost.shape[0]), tb.zeros(cost.shape[1])
        for _ in range(steps):
            u = -tb.logsumexp(k + v[None, :], axis=1)
            v = -tb.logsumexp(k + u[:, None], axis=0)
        return tb.exp(k + u[:, None] + v[None, :])

    cost = tb.asarray([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    return fn, [(cost, 3), (cost * 2, 3), (cost, 2, 1.0)]


@program
def page_rank():
    def fn(links, damping, steps):
        n = links.shape[0]
        out = links.sum(axis=0)
        transition = tb.where(out > 0, links / tb.where(out > 0, out, 1.0), 1 / n)
        rank = tb.full((n,), 1 / n)
        for _ in range(steps):
            rank = (1 - damping) / n + damping * (transition @ rank)
        return rank

    links = tb.asarray([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    return fn, [(links, 0.85, 4), (links, 0.5, 4), (tb.eye(2), 0.85, 2)]


@program
def kalman_filter():
    def fn(observations, noise):
        mean, variance = tb.zeros(()), tb.ones(())
        track = []
        for z in observations:
            variance = variance + 0.1
            gain = variance / (variance + noise)
            mean = mean + gain * (z - mean)
            variance = (1 - gain) * variance
            track.append(mean)
        return tb.stack(track), variance

    return fn, [(tb.asarray([1.0, 0.5, 0.75]), 0.5), (tb.ones(3), 0.25), (tb.ones(2), 0.5)]


@program
def runge_kutta():
    def step(f, t, y, h):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def fn(y, f, steps, h=0.1):
        for k in range(steps):
            y = step(f, k * h, y, h)
        return y

    def spring(t, y):
        return tb.stack([y[1], -y[0]])

    y = tb.asarray([1.0, 0.0])
    return fn, [(y, spring, 3), (y * 2, spring, 3), (y, lambda t, y: -y * t, 2)]


@program
def monte_carlo_pi():
    def fn(n):
        points = tb.rand(n, 2)
        inside = tb.square(points).sum(axis=1) <= 1.0
        return 4 * tb.cast(inside, tb.float32).mean()

    return fn, [(64,), (64,), (32,)]


@program
def game_of_life():
    def fn(board, steps=1):
        for _ in range(steps):
            near = sum(
                tb.roll(board, (i, j), axis=(0, 1))
                for i in (-1, 0, 1)
                for j in (-1, 0, 1)
                if (i, j) != (0, 0)
            )
            board = tb.cast((near == 3) | ((board == 1) & (near == 2)), board.dtype)
        return board

    board = tb.zeros((5, 5), dtype="int32")
    board[2, 1:4] = 1
    glider = tb.asarray([[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]], dtype="int32")
    return fn, [(board,), (board, 2), (glider,), (board,)]


@program
def rule_of_a_cellular_automaton():
    def fn(cells, rule, steps):
        table = tb.asarray([(rule >> k) & 1 for k in range(8)], dtype="int32")
        history = [cells]
        for _ in range(steps):
            code = 4 * tb.roll(cells, 1) + 2 * cells + tb.roll(cells, -1)
            cells = tb.take(table, code)
            history.append(cells)
        return tb.stack(history)

    cells = tb.asarray([0, 0, 0, 1, 0, 0, 0], dtype="int32")
    return fn, [(cells, 90, 2), (cells, 30, 2), (cells, 90, 3)]


@program
def mandelbrot():
    def fn(width, height, limit):
        re = tb.linspace(-2.0, 0.5, width)[None, :]
        im = tb.linspace(-1.0, 1.0, height)[:, None]
        x, y = tb.zeros((height, width)), tb.zeros((height, width))
        count = tb.zeros((height, width), dtype="int32")
        for _ in range(limit):
            inside = x * x + y * y <= 4.0
            x, y = tb.where(inside, x * x - y * y + re, x), tb.where(inside, 2 * x * y + im, y)
            count = count + tb.cast(inside, "int32")
        return count

    return fn, [(5, 3, 4), (5, 3, 6), (4, 4, 4)]


@program
def heat_on_a_rod():
    def fn(u, rate, steps):
        for _ in range(steps):
            inner = u[1:-1] + rate * (u[2:] - 2 * u[1:-1] + u[:-2])
            u = tb.concat([u[:1], inner, u[-1:]])
        return u

    u = tb.asarray([0.0, 0.0, 1.0, 0.0, 0.0])
    return fn, [(u, 0.25, 2), (u, 0.125, 2), (u[1:], 0.25, 3)]


@program(data_dependent=True)
def bisection():
    def fn(f, low, high, tolerance):
        steps = 0
        while float(high - low) > tolerance:
            middle = (low + high) / 2
            if (f(middle) < 0).item():
                low = middle
            else:
                high = middle
            steps += 1
        return low, high, steps

    zero, four = tb.asarray(0.0), tb.asarray(4.0)
    return fn, [(lambda x: x * x - 3, zero, four, 0.1), (lambda x: x - 1.3, zero, four, 0.5)]
