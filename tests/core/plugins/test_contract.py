"""Functions of a device package that return something else than they must."""

from __future__ import annotations

import pytest

from throwaway import EXTENSION, RUNTIME, Site

BREACHES = {
    "properties": (
        "def properties(self, index): return None",
        "error_of(lambda: device('npu').properties)",
        "runtime.properties(0) returned None; it must return DeviceProperties",
    ),
    "dtypes": (
        "def properties(self, index):\n"
        "        from tensorbus.backend_interface.protocols import DeviceProperties\n"
        "        return DeviceProperties(name='x', dtypes=frozenset({'float32'}))",
        "error_of(lambda: device('npu').properties)",
        "DeviceProperties whose dtypes are frozenset({'float32'})",
    ),
    "to_host": (
        "def to_host(self, value, dtype, index): return [1.0]",
        "error_of(tb.ones(2, device='npu').tolist)",
        "runtime.to_host(...) returned list; it must return a memoryview of 8 bytes, for float32",
    ),
    "too few bytes": (
        "def to_host(self, value, dtype, index): return memoryview(b'1234')",
        "error_of(tb.ones(2, device='npu').tolist)",
        "returned 4 bytes; it must return a memoryview of 8 bytes",
    ),
    "memory_stats": (
        "def memory_stats(self, index): return None",
        "error_of(device('npu').memory_stats)",
        "runtime.memory_stats(0) returned None; it must return MemoryStats",
    ),
}
KERNELS = """
@hookimpl
def tensorbus_kernels(device_type):
    from tensorbus.backend_api import Kernel
    from types import SimpleNamespace
    def full(shape, value, dtype): return SimpleNamespace(shape=shape)
    def supports(call): raise KeyError("rank")
    return {
        "full": full,
        "ad": full,
        "add": Kernel(name="quick", function=full, supports=supports),
        "exp": Kernel(name="fast", function=full, before=("defualt", "*")),
    }
"""


def _install(site: Site, runtime: str = RUNTIME) -> None:
    head = EXTENSION.partition("@hookimpl\ndef tensorbus_kernels")[0]
    site.install("npu", extension=head + KERNELS, runtime=runtime)


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_names_the_package_the_function_and_what_is_needed(site: Site, name: str) -> None:
    wrong, asked, words = BREACHES[name]
    _install(site, f"{RUNTIME}    {wrong}\n")
    site.run(
        f"""
        import tensorbus as tb
        error = {asked}
        check(type(error) is PluginError and "'npu' of tb-npu 1.0" in str(error), repr(error))
        check({words!r} in str(error), error)
        """
    )


def test_a_kernel_that_cannot_say_what_it_supports_is_named(site: Site) -> None:
    _install(site)
    site.run(
        """
        import tensorbus as tb
        x = tb.ones(2, device="npu")
        for error in (error_of(tb.add, x, x), error_of(tb.explain, "add", x, x)):
            check(type(error) is PluginError, repr(error))
            check("add: kernel 'quick' of tb-npu 1.0" in str(error), error)
            check("supports failed with KeyError: 'rank'" in str(error), error)
        """
    )


def test_the_doctor_tells_of_names_that_nobody_has(site: Site) -> None:
    _install(site)
    shown = site.command("doctor", code=1, environment={"COLUMNS": "300", "TENSORBUS_PLUGINS": "npu"})
    assert "the kernel table of tb-npu 1.0 has 'ad', and there is no such op" in shown
    assert "kernel 'fast' of tb-npu 1.0 for 'exp' is to come before 'defualt'" in shown


def test_a_plugin_is_not_taken_out_as_a_device_is(site: Site) -> None:
    site.run(
        """
        from types import SimpleNamespace
        from tensorbus.plugins.hookspecs import hookimpl
        def tensorbus_kernels(device_type): return None
        plugins.register_plugin("extra", SimpleNamespace(tensorbus_kernels=hookimpl(tensorbus_kernels)))
        check("call unregister_plugin('extra')" in str(error_of(plugins.unregister, "extra")))
        """
    )
