"""What goes wrong after a plugin was found: a bad name, a device that cannot describe itself, forks."""

from __future__ import annotations

import json
import os

import pytest

from throwaway import EXTENSION, RUNTIME, Site


def test_an_entry_point_that_names_no_device_type(site: Site) -> None:
    only = {"TENSORBUS_PLUGINS": "fine,NP U!"}
    site.install("NP U!", dist="tb-weird", manifest='[plugin]\nname = "weird"\napi = ">=0.1"\n')
    site.install("fine")
    rows = {row["dist"]: row for row in json.loads(site.command("devices", "--json", environment=only))}
    assert rows["tb-fine"]["state"] == "ready"
    assert rows["tb-weird"]["state"] == "unavailable"
    assert "must consist of ASCII letters" in rows["tb-weird"]["reason"]
    site.run("check('NP U!' not in plugins.known_types()); check(device('fine').is_available())")


def test_a_device_that_cannot_describe_itself(site: Site) -> None:
    broken = RUNTIME.replace("from tensorbus.dtypes import float32", "raise RuntimeError('no such register')")
    site.install("mute", runtime=broken)
    site.install("fine")
    site.run(
        """
        import tensorbus as tb
        for ask in (lambda: device("mute").properties, lambda: tb.zeros(3, device="mute")):
            error = error_of(ask)
            check(type(error) is DeviceError, error)
            check("'mute:0' of tb-mute 1.0" in str(error) and "no such register" in str(error), error)
            check(type(error.__cause__) is RuntimeError)
        check(device("fine").properties.name == "tb_fine.runtime")
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_waits_for_a_device_that_is_being_opened(site: Site) -> None:
    """A child made in the middle of an import would inherit locks that nobody there releases."""
    slow = "import builtins\nbuiltins.started.set()\nbuiltins.forking.wait(60)\n"
    site.install("slow", extension=slow + EXTENSION)
    site.install("other")
    site.run(
        """
        builtins.started, builtins.forking = threading.Event(), threading.Event()
        os.register_at_fork(before=builtins.forking.set)  # the last one that is registered is called first
        opener = threading.Thread(target=device, args=("slow",))
        opener.start()
        builtins.started.wait()
        with warnings.catch_warnings():
            # A DeprecationWarning of forking with threads is about what is tested here.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            ready = device("other").is_available() and device("slow").is_available()
            os._exit(0 if ready else 1)
        check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)
        opener.join()
        check(device("slow").is_available())
        """
    )


def test_a_default_that_names_no_device_is_named(site: Site) -> None:
    site.install("fine", device="host = true")
    site.run(
        """
        error = error_of(get_default_device)
        check("TENSORBUS_DEFAULT_DEVICE='x y'" in str(error), error)
        """,
        TENSORBUS_DEFAULT_DEVICE="x y",
    )
    switches = {"TENSORBUS_DEFAULT_DEVICE": "nope", "TENSORBUS_PLUGINS": "fine"}
    printed = site.command("devices", environment=switches)
    assert "The default device cannot be used: TENSORBUS_DEFAULT_DEVICE='nope'" in printed
