"""What goes wrong after a plugin was found: a bad name, a device that cannot describe itself, forks."""

from __future__ import annotations

import json
import os

import pytest

from throwaway import EXTENSION, RUNTIME, Site

SAYS = "\\x1b[2J\\x07\\udcff" + "long" * 100_000


def counting(line: str) -> str:
    return RUNTIME.replace("return self.units", line)


def raising(kind: str) -> str:
    return counting(f"raise type({kind})()")


def describing(description: str) -> str:
    return RUNTIME.replace("name=__name__", description)


# name: (the runtime, what is said of it; "" for one that works)
SPEAKERS = {
    "text": (counting(f"raise OSError('{SAYS}')"), "its probe failed: OSError: \\x1b[2J\\x07\\udcfflong"),
    "kind": (raising(r"'\x1b[2J', (Exception,), {}"), "its probe failed: \\x1b[2J: no reason given"),
    "mute": (
        raising("'Mute', (Exception,), {'__str__': lambda self: 1 / 0}"),
        "its probe failed: Mute: its text cannot be had, as that raises ZeroDivisionError",
    ),
    "endless": (
        raising("'Slow', (Exception,), {'__str__': lambda self: __import__('time').sleep(99)}"),
        "its probe failed: no answer within 2 s",
    ),
    "count": (counting(f"return '{SAYS}'"), "returned '\\x1b[2J\\x07\\udcfflong"),
    "name": (describing(f"name='{SAYS}'"), ""),
    "note": (describing(f"name='x', extra={{'note': '{SAYS}'}}"), ""),
    "number": (describing("name=3"), "whose name is 3; it must return"),
    "memory": (describing("name='x', memory='much'"), "whose memory is 'much'; it must return"),
    "extra": (describing("name='x', extra=3"), "whose extra is 3; it must return"),
}


@pytest.mark.full
def test_what_plugins_say_is_shown_as_text(site: Site) -> None:
    for name, (runtime, _) in SPEAKERS.items():
        site.install(name, runtime=runtime)
    site.install("fine", device="host = true")
    only = {"TENSORBUS_PLUGINS": ",".join([*SPEAKERS, "fine"]), "TENSORBUS_PROBE_TIMEOUT": "2"}
    rows = {row["dist"]: row for row in json.loads(site.command("devices", "--json", environment=only))}
    for name, (_, fault) in SPEAKERS.items():
        row = rows[f"tb-{name}"]
        assert fault in (row["reason"] or ""), row
        for text in (row["reason"] or "", row["name"], row["note"]):
            assert len(text) < 2500
            assert text.isprintable() or not text, text[:200]
    assert rows["tb-fine"]["state"] == "ready"
    for command, code in (("devices", 0), ("doctor", 1)):
        shown = site.command(command, code=code, environment=only)
        assert "".join(shown.split()).isprintable()
        assert len(shown) < 200_000
    site.run(
        f"""
        check([str(unit) for unit in devices() if unit.type == "fine"] == ["fine:0"])
        for name in {[name for name, (_, fault) in SPEAKERS.items() if "its probe failed" in fault]}:
            error = error_of(device, name)
            check(isinstance(error, DeviceUnavailableError) and f"tb-{{name}} 1.0" in str(error), error)
            check(str(error).isprintable() and len(str(error)) < 3000, error)
        """,
        TENSORBUS_PROBE_TIMEOUT="2",
    )


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_metadata_that_is_no_file_or_has_no_end(site: Site) -> None:
    site.install("fine", device="host = true")
    for name in ("pipe", "zero", "folder", "many"):
        site.install(name)
        entries = site.folder / f"tb_{name}-1.0.dist-info" / "entry_points.txt"
        entries.unlink()
        if name == "pipe":
            os.mkfifo(entries)
        elif name == "zero":
            entries.symlink_to("/dev/zero")
        elif name == "folder":
            entries.mkdir()
        else:
            lines = "".join(f"many{k} = tb_many.extension\n" for k in range(100_000))
            entries.write_text(f"[tensorbus.devices]\n{lines}")
    site.run(
        """
        check([str(unit) for unit in devices()] == ["fine:0"])
        check(plugins.known_types()[0] == "fine" and "many199" in plugins.known_types())
        check(len(plugins.known_types()) == 201)
        """
    )
