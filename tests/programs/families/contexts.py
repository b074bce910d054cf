"""What stands after ``with``: modes, the user's own contexts, stacks of them."""

from __future__ import annotations

import contextlib
import io

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def recorded_or_not():
    w = tb.asarray([1.0, 2.0]).requires_grad_()

    def fn(x, train):
        with contextlib.nullcontext() if train else tb.no_grad():
            y = w * x
            inside = tb.is_grad_enabled()
        return y, inside, (w * 2).requires_grad

    x = tb.ones(2)
    return fn, [(x, True), (x, False), (x, True), (x * 2, False)], w


@program
def decorated_with_no_grad():
    w = tb.ones(2).requires_grad_()

    @tb.no_grad()
    def frozen(x):
        return w * x

    def fn(x):
        a = frozen(x)
        with tb.no_grad():
            b = a + w
            with tb.enable_grad():
                c = w * b
        return a, b, c

    return fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2),)], w


@program
def context_made_by_a_generator():
    events = []

    @contextlib.contextmanager
    def scaled(by):
        events.append(f"enter {by}")
        try:
            yield lambda x: x * by
        except tb.ShapeError:
            events.append("shapes")
        finally:
            events.append("exit")

    def fn(x, y):
        with scaled(2.0) as scale:
            x = scale(x)
            x += y
        return x

    return fn, [(tb.ones(2), tb.ones(2)), (tb.ones(2), tb.ones(3)), (tb.ones(2), tb.zeros(2))], events


@program
def suppressed_errors():
    def fn(x, axis):
        with contextlib.suppress(tb.AxisError, KeyError):
            x = x.sum(axis=axis)
            x = {0: x}[axis]
        return x

    x = tb.reshape(tb.arange(6.0), (2, 3))
    return fn, [(x, 0), (x, 1), (x, 5), (x * 2, 0)]


@program
def exit_stack_unwinds():
    order = []

    def fn(x, n):
        with contextlib.ExitStack() as stack:
            for k in range(n):
                stack.callback(order.append, k)
            if n > 2:
                stack.enter_context(tb.no_grad())
            return x * n

    x = tb.ones(2).requires_grad_()
    return fn, [(x, 2), (x, 3), (x, 2)], order


@program
def chosen_kernel():
    with contextlib.redirect_stdout(io.StringIO()):
        (decision,) = tb.explain("add", tb.ones(2), 1.0).decisions

    def fn(x):
        with tb.prefer_kernel(add=decision.chosen.kernel.name):
            x = x + 1
        return x * 2

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2) * 2,)]


@program
def impossible_kernel_is_caught():
    def fn(x):
        try:
            with tb.prefer_kernel(exp="nobody's"):
                return tb.exp(x)
        except tb.UnsupportedOpError as error:
            return type(error).__name__, tb.exp(-x)

    return fn, [(tb.zeros(2),), (tb.ones(2),), (tb.zeros(3),)]
