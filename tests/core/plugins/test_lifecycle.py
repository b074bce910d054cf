"""Late registration, unregistration, ops of plugins, many threads, forked children."""

from __future__ import annotations

import os

import pytest

from throwaway import EXTENSION, RUNTIME, Site

# A device written in the program that uses it.
INLINE = (
    """
from types import SimpleNamespace
from tensorbus.backend_api import hookimpl
from tensorbus.plugins.manifest import Manifest
"""
    + RUNTIME
    + """
def extension(**more):
    return SimpleNamespace(tensorbus_device=hookimpl(tensorbus_device), **more)

def tensorbus_device(device_type):
    log.append(("device", device_type))
    return Runtime()
"""
)


def test_late_registration_and_unregistration(site: Site) -> None:
    site.install("npu")
    site.run(
        INLINE
        + """
changes = []
cancel = plugins.on_change(lambda: changes.append(plugins.known_types()))

late = plugins.register("late", extension())
check(late.state == "discovered" and changes == [["late", "npu"]] and not log)
check(device("late").is_available() and late.state == "ready" and plugins.backend("late") is late)
check([d.type for d in devices()] == ["late", "npu"] and len(changes) == 1)

for taken in ("late", "npu"):
    error = error_of(plugins.register, taken, extension())
    check(type(error) is PluginError and "already supplied by" in str(error), error)
check("tb-npu 1.0" in str(error) and "Device" not in str(error))

plugins.unregister("late")
check(changes[-1] == ["npu"] and not Device("late").is_available())
check(type(error_of(device, "late")) is DeviceUnavailableError)
check(type(error_of(plugins.unregister, "late")) is DeviceUnavailableError)

first = plugins.backend("npu")
plugins.unregister("npu")
check(plugins.known_types() == [] and type(error_of(device, "npu")) is DeviceUnavailableError)
plugins.register("npu", extension())
check(plugins.backend("npu").dist == "SimpleNamespace")
plugins.unregister("npu")
plugins.retry("npu")
check(plugins.backend("npu") is not first and plugins.backend("npu").dist == "tb-npu")

cancel(), cancel()
before = len(changes)
manifest = Manifest(name="x", type="late", host=True)
plugins.register("late", extension(), manifest=manifest)
check(plugins.backend("late").manifest is manifest and plugins.host_backend() is plugins.backend("late"))
text = '[plugin]\\nname = "x"\\napi = ">=7"\\n[device]\\ntype = "later"'
plugins.register("later", extension(), manifest=text)
check("backend API '>=7'" in str(error_of(device, "later")) and len(changes) == before)
check("cannot name a device type" in str(error_of(plugins.register, "a:b", extension())))
check("manifest" in str(error_of(plugins.register, "new", "tensorbus.errors")))
"""
    )


def test_a_failure_is_kept_until_retry(site: Site) -> None:
    site.install(
        "npu", runtime=RUNTIME.replace("return self.units", "import builtins; return builtins.units")
    )
    site.run(
        """
        changes = []
        plugins.on_change(lambda: changes.append(1))
        builtins.units = 0
        error_of(device, "npu")
        builtins.units = 2
        error_of(device, "npu")
        check(log.count(("device", "npu")) == 1 and not changes)
        plugins.retry("npu")
        check(device("npu:1").is_available() and len(changes) == 1)
        check([str(d) for d in devices()] == ["npu:0", "npu:1"])
        check([s.device_count for s in plugins.status()] == [2])
        """
    )


def test_plugins_registered_late_bring_kernels_and_ops(site: Site) -> None:
    site.install("npu")
    manifest = '[plugin]\nname = "bring"\napi = ">=0.1"\n'
    ops = (
        "from tensorbus.backend_api import hookimpl\n@hookimpl\ndef tensorbus_ops():\n    return ['an op']\n"
    )
    site.install("bring", group="tensorbus.plugins", manifest=manifest, extension=ops)
    site.run(
        INLINE
        + """
kernels = {"mul": lambda a, b: None}
more = SimpleNamespace(tensorbus_kernels=hookimpl(lambda device_type: kernels))
manifest = Manifest(name="more", kernels_for=("npu", "late"))
changes = []
plugins.on_change(lambda: changes.append(1))
device("npu")
plugins.register_plugin("more", more, manifest)
check(len(changes) == 1)
check([owner for owner, table in plugins.backend("npu").kernels] == ["tb-npu 1.0", "SimpleNamespace"])
check("already supplied" in str(error_of(plugins.register_plugin, "more", more, manifest)))
plugins.register("late", extension())
check(plugins.backend("late").kernels == [("SimpleNamespace", kernels)])
plugins.unregister_plugin("more")
check([owner for owner, table in plugins.backend("npu").kernels] == ["tb-npu 1.0"])
check("no plugin 'more'" in str(error_of(plugins.unregister_plugin, "more")))

bad = SimpleNamespace(tensorbus_kernels=hookimpl(lambda device_type: 1 / 0))
check("ZeroDivisionError" in str(error_of(plugins.register_plugin, "bad", bad, manifest)))
check(len(plugins.backend("npu").kernels) == 1)

check("tb_bring" not in sys.modules)
check(plugins.ops() == [("tb-bring 1.0", "an op")] == plugins.ops())
"""
    )


def test_many_threads_open_a_device_once(site: Site) -> None:
    slow = "\nimport builtins\nbuiltins.all_ask.wait(60)\n"
    site.install("npu", extension=EXTENSION + slow)
    site.install("broken", extension=f"import builtins\nbuiltins.plugin_log.append('broken')\n{slow}1/0\n")
    site.run(
        """
        def gather(function, count=16):
            results, asking, builtins.all_ask = [], [], threading.Event()
            def run():
                asking.append(1)
                if len(asking) == count:
                    builtins.all_ask.set()
                try:
                    results.append(function())
                except Exception as error:
                    results.append(error)
            threads = [threading.Thread(target=run) for _ in range(count)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            return results
        opened = gather(lambda: plugins.backend("npu"))
        check(len(set(map(id, opened))) == 1 and opened[0].state == "ready", opened)
        check(log == [("import", "tb_npu.extension"), ("device", "npu")], log)
        failed = gather(lambda: plugins.backend("broken"))
        check({type(error) for error in failed} == {DeviceUnavailableError}, failed)
        check(len({id(error.__cause__) for error in failed}) == 1 and log.count("broken") == 1, log)
        from tensorbus.dtypes import float32
        check(len(set(map(id, gather(lambda: ValueType.of(float32, Device("npu")))))) == 1)
        """
    )


def test_threads_that_open_two_devices_do_not_wait_for_each_other(site: Site) -> None:
    """Each probe ends only when the other one has begun."""
    meet = "return builtins.meeting.wait(10) * 0 + 1"
    runtime = "import builtins\n" + RUNTIME.replace("return self.units", meet)
    site.install("alpha", runtime=runtime)
    site.install("beta", runtime=runtime)
    site.run(
        """
        builtins.meeting = threading.Barrier(2)
        threads = [threading.Thread(target=plugins.backend, args=(name,)) for name in ("alpha", "beta")]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        check([d.type for d in devices()] == ["alpha", "beta"])
        """,
        TENSORBUS_PROBE_TIMEOUT="15",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child(site: Site) -> None:
    site.install("safe")
    site.install("unsafe", device="fork_safe = false")
    site.install("unused", device="fork_safe = false")
    site.install(
        "slow",
        device="fork_safe = false",
        runtime="import builtins\n"
        + RUNTIME.replace(
            "return self.units", "builtins.probing.set(); return builtins.forking.wait(60) * 1"
        ),
    )
    site.run(
        """
        def in_child(work):
            # A DeprecationWarning of forking with threads is about what is tested here.
            warnings.simplefilter("ignore")
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                    os._exit(0)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                finally:
                    os._exit(1)
            check(os.waitpid(pid, 0)[1] == 0)

        builtins.probing, builtins.forking = threading.Event(), threading.Event()
        os.register_at_fork(before=builtins.forking.set)  # the last one that is registered is called first
        device("safe"), device("unsafe")
        changes = []
        plugins.on_change(lambda: changes.append(1))

        def child():
            check(device("safe").is_available() and device("unused").is_available())
            error = error_of(device, "unsafe")
            check(type(error) is DeviceUnavailableError, error)
            check("forked" in str(error) and '"spawn"' in str(error), error)
            check(len(changes) == 1 and [d.type for d in devices()] == ["safe", "slow", "unused"])
            status = {s.name: s for s in plugins.status()}
            check(status["unsafe"].state == "unavailable" and not status["unsafe"].broken)
        in_child(lambda: (device("unused"), check(not Device("unsafe").is_available())))
        in_child(child)
        check(not changes and device("unsafe").is_available())

        # Forked by one thread while another one holds the locks and probes.
        builtins.probing.clear(), builtins.forking.clear()
        thread = threading.Thread(target=device, args=("slow",))
        thread.start()
        builtins.probing.wait()
        in_child(lambda: check("spawn" in str(error_of(device, "slow")) and device("safe").is_available()))
        thread.join()
        check(device("slow").is_available())
        """
    )
