"""Plugins that bring ops and kernels, through the tensors that use them."""

from __future__ import annotations

from throwaway import Site

OPS = """
from tensorbus.backend_api import dtypes, elementwise, hookimpl, Kernel
import tensorbus as tb

cube = elementwise(
    "cube", dtypes=dtypes.FLOATING, decompose=lambda x: x * x * x, vjp=lambda g, x: (g * 3 * x * x,)
)
bare = elementwise("bare", dtypes=dtypes.FLOATING, decompose=lambda x: tb.sin(x) * x)

@hookimpl
def tensorbus_ops():
    return [cube, bare]
"""
KERNELS = """
from tensorbus.backend_api import Kernel, hookimpl
import numpy as np

calls = []

def bare(x):
    calls.append(x.shape)
    return np.sin(x) * x

@hookimpl
def tensorbus_kernels(device_type):
    return {"bare": Kernel(name="quick_bare", function=bare)}
"""


def test_a_plugin_op_works_on_every_device(site: Site) -> None:
    site.install(
        "bring",
        group="tensorbus.plugins",
        manifest='[plugin]\nname = "bring"\napi = ">=0.1"\n',
        extension=OPS,
    )
    site.run_beside_all(
        """
        import tensorbus as tb
        from tensorbus import backend_api, nn  # a part of tensorbus loads no plugin
        check("tb_bring" not in sys.modules)
        for name in ("cpu", "opencl", "refdev"):
            x = tb.asarray([1.0, 2.0], device=name).requires_grad_()
            check(tb.cube(x).tolist() == [1.0, 8.0] and x.cube().tolist() == [1.0, 8.0])
            tb.cube(x).sum().backward()
            check(x.grad.tolist() == [3.0, 12.0], x.grad)
            (first,) = tb.grad(tb.bare(x).sum(), x, create_graph=True)
            (second,) = tb.grad(first.sum(), x)
            expected = (2 * tb.cos(x) - x * tb.sin(x)).tolist()
            check(all(abs(a - b) < 1e-5 for a, b in zip(second.tolist(), expected)), second)
        check(not hasattr(tb, "no_such_op"))
        """
    )


def test_a_kernel_for_a_composite_keeps_its_derivative(site: Site) -> None:
    site.install(
        "bring",
        group="tensorbus.plugins",
        manifest='[plugin]\nname = "bring"\napi = ">=0.1"\n',
        extension=OPS,
    )
    site.install(
        "quick", group="tensorbus.plugins", extension=KERNELS,
        manifest='[plugin]\nname = "quick"\napi = ">=0.1"\n[kernels]\nfor = ["cpu"]\n',
    )  # fmt: skip
    site.run_beside_all(
        """
        import math
        import tensorbus as tb
        x = tb.asarray([1.0, 2.0], device="cpu").requires_grad_()
        y = tb.bare(x)
        import tb_quick.extension
        check(tb_quick.extension.calls == [(2,)], tb_quick.extension.calls)
        (first,) = tb.grad(y.sum(), x, create_graph=True)
        expected = [math.cos(v) * v + math.sin(v) for v in (1.0, 2.0)]
        check(all(abs(a - b) < 1e-6 for a, b in zip(first.tolist(), expected)), first)
        (second,) = tb.grad(first.sum(), x)
        expected = [2 * math.cos(v) - v * math.sin(v) for v in (1.0, 2.0)]
        check(all(abs(a - b) < 1e-5 for a, b in zip(second.tolist(), expected)), second)
        """
    )
