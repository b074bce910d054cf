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
        compiled = tb.compile(lambda x: tb.cube(x) + tb.bare(x), dynamic=True)
        for n in (2, 3, 4):
            compiled(tb.ones(n, device="cpu"))
        check(len(compiled.replays) == 1, compiled.reasons)  # found where core's own ops are
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


def _op_package(site: Site, name: str, ops: str) -> None:
    site.install(
        name, group="tensorbus.plugins", manifest=f'[plugin]\nname = "{name}"\napi = ">=0.1"\n',
        extension=f"""
from tensorbus.backend_api import dtypes, elementwise, hookimpl
import tensorbus as tb

def op(name):
    return elementwise(name, dtypes=dtypes.FLOATING, decompose=lambda x: x * x)

@hookimpl
def tensorbus_ops():
    return {ops}
""",
    )  # fmt: skip


def test_two_packages_with_one_op_are_refused_by_name(site: Site) -> None:
    _op_package(site, "one", '[op("twice"), op("alone")]')
    _op_package(site, "two", '[op("twice"), op("other")]')
    site.run_beside_all(
        """
        import tensorbus as tb
        x = tb.asarray([3.0], device="cpu")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            check(tb.alone(x).tolist() == tb.other(x).tolist() == [9.0])
            check(not hasattr(tb, "nosuch"))
            error = error_of(getattr, tb, "twice")
        check(type(error) is PluginError and "tb-one 1.0, tb-two 1.0" in str(error), error)
        check(len(told) == 1 and "tb-one 1.0, tb-two 1.0" in str(told[0].message), told)
        from tensorbus.ops.definition import table
        check("tb-one 1.0, tb-two 1.0" in str(error_of(table.__getitem__, "twice")))
        """
    )
    shown = site.command("doctor", code=1, environment={"TENSORBUS_PLUGINS": "one,two"})
    assert "Should work and does not: plugin one, plugin two." in shown


def test_a_package_with_a_wrong_op_is_left_out_alone(site: Site) -> None:
    _op_package(site, "good", '[op("alone")]')
    _op_package(site, "taken", '[op("lost"), op("add")]')
    _op_package(site, "late", '[op("svd")]')
    _op_package(site, "mixed", '[op("halved"), 3]')
    _op_package(site, "public", '[op("Tensor")]')
    _op_package(site, "number", "3")
    script = """
        import tensorbus as tb
        x = tb.asarray([3.0], device="cpu")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            check(tb.alone(x).tolist() == [9.0] and tb.add(x, x).tolist() == [6.0])
            check(not hasattr(tb, "nosuch") and not hasattr(tb, "nosuch"))
            taken = "op 'add' is already defined by 'tensorbus'"
            for name, cause in (("lost", taken), ("halved", "3 among its ops")):
                error = error_of(getattr, tb, name)
                check(type(error) is PluginError and cause in str(error), error)
        check(isinstance(x, tb.Tensor))
        causes = sorted(str(t.message) for t in told)
        for cause in ("tb-taken 1.0", "tb-late 1.0", "tb-mixed 1.0", "tb-public 1.0", "tb-number 1.0"):
            check(sum(cause in c for c in causes) == 1, cause, causes)
        check(len(told) == 5, causes)
        """
    site.run_beside_all(script)
    installed = "cpu,good,taken,late,mixed,public,number"
    shown = site.command("doctor", code=1, environment={"TENSORBUS_PLUGINS": installed})
    assert (
        "Should work and does not: plugin late, plugin mixed, plugin number, plugin public, plugin taken."
        in shown
    )
