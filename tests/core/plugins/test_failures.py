"""One throw-away distribution for each way to be broken: one clear error, and every other device works."""

from __future__ import annotations

import os
from typing import Any

import pytest

from throwaway import EXTENSION, RUNTIME, Site

HANGS = RUNTIME.replace("return self.units", "import time; time.sleep(1000)")
NO_LIBRARY = "import ctypes; ctypes.CDLL('libbad_driver.so.1')"
RAISES = RUNTIME.replace("return self.units", "raise RuntimeError('driver says: no such card')")

# name: (how it is installed, class of the error, words of its message, whether the plugin itself is at fault)
FAILURES: dict[str, tuple[dict[str, Any], str, list[str], bool]] = {
    "import error": (
        {"extension": "import no_such_module_anywhere\n"},
        "DeviceUnavailableError",
        ["importing it failed", "ModuleNotFoundError", "no_such_module_anywhere"],
        True,
    ),
    "syntax error": (
        {"extension": "def broken(:\n"},
        "DeviceUnavailableError",
        ["importing it failed", "SyntaxError"],
        True,
    ),
    "exits when imported": (
        {"extension": "raise SystemExit(3)\n"},
        "DeviceUnavailableError",
        ["importing it failed", "SystemExit: 3"],
        True,
    ),
    "raises no Exception when imported": (
        {"extension": "class Bad(BaseException): pass\nraise Bad('gone')\n"},
        "DeviceUnavailableError",
        ["importing it failed", "Bad: gone"],
        True,
    ),
    "exits in its probe": (
        {"runtime": RUNTIME.replace("return self.units", "import sys; sys.exit(3)")},
        "DeviceUnavailableError",
        ["its probe failed", "SystemExit: 3"],
        True,
    ),
    "hangs when imported": (
        {"extension": "import time; time.sleep(1000)"},
        "DeviceUnavailableError",
        ["importing it failed: no answer within 1 s", "TENSORBUS_PROBE_TIMEOUT", "its import hangs"],
        True,
    ),
    "hangs when it hands over its kernels": (
        {"extension": EXTENSION.replace('return {"add"', 'import time; time.sleep(1000); return {"add"')},
        "DeviceUnavailableError",
        ["handing over its kernels failed: no answer within 1 s", "hook tensorbus_kernels hangs"],
        True,
    ),
    "too many devices": (
        {"runtime": RUNTIME.replace("return self.units", "return 10**12")},
        "PluginError",
        ["device_count() of 'bad' from tb-bad 1.0 returned 1000000000000", "an int from 0 to 4096"],
        True,
    ),
    "missing driver library at import": (
        {"extension": NO_LIBRARY, "device": 'requires = "Bad driver 3"'},
        "DeviceUnavailableError",
        ["OSError: libbad_driver.so.1", "It needs Bad driver 3."],
        False,
    ),
    "missing driver library in the hook": (
        {
            "extension": EXTENSION.replace("return Runtime()", NO_LIBRARY),
            "device": 'requires = "Bad driver 3"\ninstall = "pip install bad-driver"',
        },
        "DeviceUnavailableError",
        ["its probe failed: OSError: libbad_driver.so.1", "It needs Bad driver 3.", "pip install bad-driver"],
        False,
    ),
    "probe raises": (
        {"runtime": RAISES},
        "DeviceUnavailableError",
        ["its probe failed: RuntimeError: driver says: no such card"],
        False,
    ),
    "probe finds none": (
        {"runtime": RUNTIME.replace("units = 1", "units = 0")},
        "DeviceUnavailableError",
        ["its driver found no device"],
        False,
    ),
    "probe hangs": (
        {"runtime": HANGS},
        "DeviceUnavailableError",
        ["its probe failed: no answer within 1 s", "TENSORBUS_PROBE_TIMEOUT"],
        True,
    ),
    "probe answers nonsense": (
        {"runtime": RUNTIME.replace("units = 1", "units = 'two'")},
        "PluginError",
        ["device_count() of 'bad'", "'two'", "as an int"],
        True,
    ),
    "wrong API range": (
        {"api": ">=2,<3"},
        "PluginError",
        ["written for backend API '>=2,<3'", "has backend API 0.1", "none of its code was run"],
        True,
    ),
    "malformed API range": (
        {"api": "two"},
        "PluginError",
        ["manifest of tb-bad 1.0 is malformed", "'two' is not a comparison"],
        True,
    ),
    "manifest is no TOML": (
        {"manifest": "[plugin\nname ="},
        "PluginError",
        ["manifest of tb-bad 1.0 is malformed", "manifest.toml"],
        True,
    ),
    "manifest is nested too deeply": (
        {"manifest": "x = " + "[" * 100_000},
        "PluginError",
        ["manifest of tb-bad 1.0 is malformed", "recursion depth"],
        True,
    ),
    "manifest has a list for a name": (
        {"manifest": '[plugin]\nname = "bad"\napi = ">=0.1"\n[device]\ntype = "bad"\n[ops]\nall = [[]]\n'},
        "PluginError",
        ["manifest of tb-bad 1.0 is malformed", "manifest.toml"],
        True,
    ),
    "manifest lacks its API": (
        {"manifest": '[plugin]\nname = "bad"\n[device]\ntype = "bad"\n'},
        "PluginError",
        ["malformed", "`api = ...` in its [plugin] table"],
        True,
    ),
    "manifest misspells a key": (
        {"device": "fork_saf = false"},
        "PluginError",
        ["unknown key 'fork_saf'", "Did you mean 'fork_safe'?"],
        True,
    ),
    "manifest has a wrong type": (
        {"device": 'host = "yes"'},
        "PluginError",
        ["[device] host is 'yes'; it must be true or false"],
        True,
    ),
    "manifest is for another device": (
        {"manifest": '[plugin]\nname = "bad"\napi = ">=0.1"\n[device]\ntype = "worse"\n'},
        "PluginError",
        ["claims the device type 'bad'", "'worse'"],
        True,
    ),
    "hook with a wrong signature": (
        {"extension": EXTENSION.replace("device_type):\n    log", "device_type, colour):\n    log")},
        "PluginError",
        ["wrong signature", "colour", "`tensorbus_device(device_type: str) -> Runtime | None`"],
        True,
    ),
    "unknown hook": (
        {"extension": EXTENSION.replace("def tensorbus_kernels", "def tensorbus_kernel")},
        "PluginError",
        ["'tensorbus_kernel'", "Did you mean 'tensorbus_kernels'?"],
        True,
    ),
    "no hook": ({"extension": "x = 1\n"}, "PluginError", ["implements no hook", "@hookimpl"], True),
    "no runtime": (
        {"extension": EXTENSION.replace("return Runtime()", "return None")},
        "PluginError",
        ["gives no runtime", "@hookimpl def tensorbus_device(device_type)"],
        True,
    ),
    "half a runtime": (
        {"runtime": RUNTIME.replace("def synchronize", "def synchronise")},
        "PluginError",
        ["lacks synchronize()"],
        True,
    ),
    "kernels that are no table": (
        {"extension": EXTENSION.replace('{"add": lambda a, b: (__name__, a, b)}', "[1, 2]")},
        "PluginError",
        ["must return a mapping from op names"],
        True,
    ),
    "asks for itself": (
        {"extension": EXTENSION.replace("return Runtime()", "import tensorbus; tensorbus.device('bad')")},
        "PluginError",
        ["asked for while", "was being opened"],
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_one_clear_error_and_other_devices_work(site: Site, case: str) -> None:
    how, kind, words, broken = FAILURES[case]
    site.install("bad", **how)
    site.install("good")
    printed = site.run(
        f"""
        check(plugins.known_types() == ["bad", "good"])
        first, second = error_of(device, "bad"), error_of(device, "bad")
        for error in (first, second):
            check(type(error).__name__ == {kind!r}, repr(error))
            for word in ["'bad'", "tb-bad 1.0", *{words!r}]:
                check(word in str(error), word, str(error))
            check(error.__cause__ is not None and error.__cause__ is first.__cause__)
        check(len([entry for entry in log if entry == ("device", "bad")]) <= 1, log)
        check(not Device("bad").is_available())
        status = {{status.name: status for status in plugins.status()}}
        check(status["bad"].state == "unavailable" and status["bad"].broken is {broken}, status["bad"])
        check("Traceback" in status["bad"].traceback and status["good"].state == "discovered")

        check(device("good:0") == Device("good") and devices() == [Device("good")])
        check(plugins.backend("good").kernels[0][0] == "tb-good 1.0")
        print("ran" if "tb_bad" in sys.modules else "not run")
        """,
        TENSORBUS_PROBE_TIMEOUT="1" if "hangs" in case else "20",
    )
    reads_only = "manifest" in case or "API" in case
    assert printed.strip() == ("not run" if reads_only else "ran")


def test_two_packages_that_claim_one_type(site: Site) -> None:
    site.install("npu", dist="tb-first")
    site.install("npu", dist="tb-second", version="2.5")
    site.install("good")
    script = """
        error = error_of(device, "npu")
        check(type(error) is PluginError)
        for word in ("claimed by 2 packages", "tb-first 1.0", "tb-second 2.5", "TENSORBUS_BLOCK=tb-second"):
            check(word in str(error), word, str(error))
        check(not log and device("good").is_available())
        check([s.state for s in plugins.status()] == ["ready", "conflict", "conflict"])
        """
    site.run(script)
    chosen = 'device("npu"); check(plugins.backend("npu").dist == {!r}); check(device("good").is_available())'
    site.run(chosen.format("tb-first"), TENSORBUS_BLOCK="tb-second")
    site.run(chosen.format("tb-second"), TENSORBUS_BLOCK="Tb_First")
    site.run(chosen.format("tb-second"), TENSORBUS_PLUGINS="good,tb-second")
    site.run(chosen.format("tb-first"), TENSORBUS_PLUGINS="good,npu,tb-first")
    site.run(
        """
        states = {s.dist: s.state for s in plugins.status()}
        check(states == {"tb-good": "discovered", "tb-first": "discovered", "tb-second": "blocked"}, states)
        """,
        TENSORBUS_BLOCK="tb-second",
    )


def test_a_plugin_that_is_imported_first(site: Site) -> None:
    """It imports tensorbus at module level, and asks for its device while its package is half imported."""
    uses = "import tensorbus\nfrom . import runtime\nD = tensorbus.device('npu')\n"
    # The hook imports from the half-imported package: in another thread that would wait for this one.
    extension = EXTENSION.replace(
        "return Runtime()", "import tb_npu; from tb_npu import runtime; return Runtime()"
    )
    site.install("npu", init=uses, extension=extension)
    script = "import tb_npu, tensorbus.devices.device\nassert str(tb_npu.D) == 'npu:0'\n"
    site.run(script, TENSORBUS_PROBE_TIMEOUT="2")
    site.run("import tb_npu.extension\ncheck(device('npu').is_available())\ncheck(len(log) == 2, log)")


def test_a_broken_kernel_plugin_leaves_the_device_whole(site: Site) -> None:
    site.install("npu")
    manifest = '[plugin]\nname = "{0}"\napi = ">=0.1"\n[kernels]\nfor = ["npu"]\n'
    kernels = EXTENSION.replace('"add"', '"mul"')
    group = "tensorbus.plugins"
    site.install("more", group=group, manifest=manifest.format("more"), extension=kernels)
    site.install("bad", group=group, manifest=manifest.format("bad"), extension="1 / 0\n")
    site.install("other", group=group, manifest=manifest.replace("npu", "gpu").format("other"))
    site.run(
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            device("npu"), device("npu")
        check(len(caught) == 1 and "ZeroDivisionError" in str(caught[0].message), caught)
        check("plugin 'bad' of tb-bad 1.0 is left out" in str(caught[0].message))
        tables = [(owner, *table) for owner, table in plugins.backend("npu").kernels]
        check(tables == [("tb-npu 1.0", "add"), ("tb-more 1.0", "mul")], tables)
        states = [(s.name, s.state, s.broken) for s in plugins.status() if s.kind == "plugin"]
        check(states[0] == ("bad", "unavailable", True), states)
        check(states[1:] == [("more", "ready", False), ("other", "discovered", False)], states)
        check("tb_other" not in sys.modules)
        """
    )


@pytest.mark.skipif(os.name != "posix", reason="a process cannot interrupt itself there")
def test_an_interrupt_marks_nothing_as_broken(site: Site) -> None:
    once = """
import builtins
if not hasattr(builtins, "second"):
    builtins.second = True
    raise KeyboardInterrupt
"""
    site.install("imported", extension=once + EXTENSION)
    waits = "return builtins.interrupted.wait(60) * 1"
    site.install("slow", extension="import builtins\nbuiltins.interrupted.wait(60)\n" + EXTENSION)
    site.install("probed", runtime="import builtins\n" + RUNTIME.replace("return self.units", waits))
    site.run(
        """
        import signal, traceback
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        builtins.interrupted = threading.Event()
        module = dict(imported="tb_imported", slow="tb_slow.extension", probed="tb_probed.runtime")
        def waits():
            frame = sys._current_frames()[threading.main_thread().ident]
            callers = [caller.f_code.co_qualname for caller, _ in traceback.walk_stack(frame)]
            return "Probe.wait" in callers and module[name] in sys.modules
        def interrupt():
            while not waits():
                builtins.interrupted.wait(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        for name in module:
            builtins.interrupted.clear()
            if name != "imported":
                threading.Thread(target=interrupt, daemon=True).start()
            try:
                device(name)
                check(False)
            except KeyboardInterrupt:
                pass
            builtins.interrupted.set()
            check(device(name).is_available())
        check(log.count(("device", "probed")) == log.count(("import", "tb_slow.extension")) == 1, log)
        """
    )
