"""Devices, dtypes and defaults: what programs ask of tensors, and settings that change between calls."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)

OTHER = "refdev:1"
"""No program runs there: tensors move to it from every device."""


@program
def like_the_argument():
    def fn(x):
        y = tb.zeros(x.shape, dtype=x.dtype, device=x.device)
        return y + tb.ones_like(x), tb.full_like(x, 3), y.device == x.device, y.dtype, x.nbytes

    return fn, [(tb.ones(2),), (tb.arange(3),), (tb.ones((1, 2), dtype="bool"),)]


@program
def creation_inside():
    def fn(n, m=2):
        return (
            tb.arange(n), tb.linspace(0, 1, n), tb.eye(n, m), tb.full((m,), n), tb.asarray([n, m]),
            tb.asarray([[n / 2.0]]), tb.tril(tb.ones((n, n))), tb.meshgrid(tb.arange(n), tb.arange(m)),
        )  # fmt: skip

    return fn, [(3,), (2,), (3, 3), (3,)]


@program
def constants_among_the_results():
    def fn(x):
        ones, zeros = tb.ones_like(x), tb.zeros((2, *x.shape))
        return (ones + x) * x, ones, zeros, zeros + x, tb.full(x.shape, 7), [ones * x, tb.eye(2)]

    return fn, [(tb.arange(3.0),), (tb.ones(2),), (tb.arange(3.0) * 2,)]


@program(dtypes=("float64",))
def default_dtype_changes():
    def fn(x):
        return tb.ones(2) * 0.5, tb.asarray([0.1]), x.dtype, tb.get_default_dtype()

    def calls():
        x = tb.ones(2)
        yield (x,)
        tb.set_default_dtype(tb.float64)
        yield (x,)
        yield (tb.ones(2),)
        tb.set_default_dtype(tb.float32)
        yield (x,)

    return fn, calls()


@program
def default_device_changes():
    def fn(n):
        x = tb.arange(float(n))
        return x * 2, x.device == tb.get_default_device()

    def calls():
        yield (3,)
        with tb.device(OTHER):
            yield (3,)
        yield (3,)

    return fn, calls()


@program
def moves_between_devices():
    def fn(x):
        here = x.device
        y = (x * 2).to(OTHER) + 1
        return y, y.to(here) - x, tb.device(OTHER) == y.device

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2) * 4,)]


@program
def device_of_a_block():
    def fn(x):
        with tb.device(OTHER):
            weights = tb.arange(float(x.shape[0]))
        return x * weights.to(x), weights.device

    return fn, [(tb.ones(2),), (tb.ones(3),), (tb.arange(2.0),)]


@program
def questions_of_types_and_shapes():
    def fn(x, y):
        facts = (
            x.ndim, x.size, x.shape == y.shape, len(x), x.dtype == tb.float32,
            tb.isdtype(y.dtype, "integral"), tb.finfo(tb.float32).eps, tb.iinfo("int32").max,
            tb.broadcast_shapes(x.shape, y.shape),
        )  # fmt: skip
        return facts, tb.astype(x, y.dtype)

    return fn, [(tb.ones(2), tb.ones(2)), (tb.ones((2, 1)), tb.arange(3)), (tb.ones(2), tb.arange(2))]


@program(raises=("DeviceError",))
def mixed_devices_are_refused():
    def fn(x, y):
        return x + y.to(OTHER)

    def calls():
        x = tb.ones(2, device=OTHER)
        yield (x, x)
        yield (tb.ones(2), x)
        yield (x, tb.ones(2))

    return fn, calls()


@program
def isinstance_and_identity():
    def fn(x, other):
        kinds = [isinstance(x, tb.Tensor), type(other) is tb.Tensor, isinstance(other, (int, float))]
        same = x is other
        y = x if same else x + (other if kinds[2] else 1)
        return y, kinds, same, callable(x), hasattr(x, "shape")

    x = tb.ones(2)
    return fn, [(x, 2), (x, x), (x, tb.ones(2)), (x, None), (x, 3.5)]


@program
def results_are_the_arguments():
    def fn(x, y, swap):
        return (y, x) if swap else (x, y, x)

    x, y = tb.ones(2), tb.arange(2.0)
    return fn, [(x, y, False), (x, y, True), (y, y, False)]


@program
def nothing_to_compute():
    def fn(x, *names):
        return None if not names else {name: len(name) for name in names}

    return fn, [(tb.ones(2),), (tb.ones(2), "a", "bc"), (tb.ones(3),)]


@program(dtypes=("float16",))
def half_precision_with_a_master_copy():
    master = tb.asarray([1.0, 2.0]).requires_grad_()

    def fn(x, scale):
        w = tb.cast(master, "float16")
        loss = tb.cast((w * tb.cast(x, "float16")), "float32").sum() * scale
        loss.backward()
        with tb.no_grad():
            grad, master.grad = master.grad / scale, None
            changed = master - 0.1 * grad
        return changed, w.dtype

    return fn, [(tb.ones(2), 8.0), (tb.ones(2), 4.0), (tb.arange(2.0), 8.0)], master
