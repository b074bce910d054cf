"""Plugins that end their process, or never answer: the command line and the error stream name them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from throwaway import EXTENSION, PRELUDE, RUNTIME, Site

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are Unix's")
SEGFAULT = "import ctypes; ctypes.string_at(0)"
PRINTS = EXTENSION + "\nprint('{\"report\": 1}'); import os; os.write(1, b'[1]\\n')\n"


def probing(line: str) -> str:
    return RUNTIME.replace("return self.units", f"{line}; return 1")


# name: (how it is installed, what is said of it; "" for one that works)
ENDS: dict[str, tuple[dict[str, str], str]] = {
    "crashes": (
        {"extension": SEGFAULT},
        "importing it (tb-crashes 1.0) failed: its process was ended by SIGSEGV",
    ),
    "aborts": (
        {"runtime": probing("import os; os.abort()")},
        "device_count() (tb-aborts 1.0) failed: its process was ended by SIGABRT",
    ),
    "leaves": (
        {"runtime": probing("import os; os._exit(3)")},
        "device_count() (tb-leaves 1.0) failed: it ended its process with exit code 3",
    ),
    "killed": ({"runtime": probing("import os; os.kill(os.getpid(), 9)")}, "was ended by SIGKILL"),
    "exits": ({"extension": "import sys; sys.exit(4)"}, "importing it failed: SystemExit: 4"),
    "raises": ({"extension": "class Bad(BaseException): pass\nraise Bad"}, "importing it failed: Bad: "),
    "endless": ({"extension": "import time; time.sleep(1000)"}, "importing it failed: no answer within 2 s"),
    "describes": (
        {"runtime": RUNTIME.replace("return DeviceProperties", "import os; os._exit(0)")},
        "runtime.properties(0) (tb-describes 1.0) failed: it ended its process with exit code 0",
    ),
    "many": ({"runtime": probing("return 10**12")}, "returned 1000000000000; it must return how many"),
    "prints": ({"extension": PRINTS}, ""),
    "fine": ({"device": "host = true"}, ""),
}  # fmt: skip
SWITCHES = {"TENSORBUS_PLUGINS": ",".join([*ENDS, "addon"]), "TENSORBUS_PROBE_TIMEOUT": "2"}


@pytest.fixture
def ends(site: Site) -> Site:
    """All of them, installed beside each other."""
    for name, (how, _) in ENDS.items():
        site.install(name, **how)
    return site


@pytest.mark.full
def test_devices_says_what_became_of_each(ends: Site) -> None:
    rows = json.loads(ends.command("devices", "--json", environment=SWITCHES))
    rows = [row for row in rows if row["state"] != "blocked"]
    assert {row["dist"] for row in rows} == {f"tb-{name}" for name in ENDS}
    for row in rows:
        name = row["dist"].removeprefix("tb-")
        reason = ENDS[name][1]
        assert row["state"] == ("unavailable" if reason else "ready"), row
        assert reason in (row["reason"] or ""), row
        assert row["default"] is (name == "fine")
    shown = ends.command("devices", environment={**SWITCHES, "TENSORBUS_DEFAULT_DEVICE": "crashes"})
    assert "The default device cannot be used: TENSORBUS_DEFAULT_DEVICE='crashes': " in shown
    assert "SIGSEGV" in shown


@pytest.mark.full
def test_doctor_says_what_became_of_each(ends: Site) -> None:
    manifest = '[plugin]\nname = "addon"\napi = ">=0.1"\n[kernels]\nfor = ["fine"]\n'
    ends.install("addon", group="tensorbus.plugins", manifest=manifest, extension=SEGFAULT)
    report = json.loads(ends.command("doctor", "--json", code=1, environment=SWITCHES))
    assert report["healthy"] is False
    assert report["default"] == "fine:0"
    statuses = {finding["status"]["name"]: finding["status"] for finding in report["findings"]}
    statuses = {name: status for name, status in statuses.items() if status["state"] != "blocked"}
    assert statuses.keys() == {*ENDS, "addon"}
    for name, (_, reason) in ENDS.items():
        assert (statuses[name]["reason"] is None) is (not reason), statuses[name]
        assert reason in (statuses[name]["reason"] or ""), statuses[name]
        assert statuses[name]["broken"] is bool(reason)
    assert (
        "importing it (tb-addon 1.0) failed: its process was ended by SIGSEGV" in statuses["addon"]["reason"]
    )
    for name in ("crashes", "addon"):
        assert f"<plugin tb-{name} 1.0: importing it>" in statuses[name]["traceback"]


@pytest.mark.parametrize("name", ["crashes", "aborts", "addon"])
def test_a_process_that_dies_of_a_plugin_names_it(site: Site, name: str) -> None:
    how = ENDS.get(name, ENDS["fine"])[0]
    site.install("fine" if name == "addon" else name, **how)
    if name == "addon":
        manifest = '[plugin]\nname = "addon"\napi = ">=0.1"\nops = ["crash"]\n'
        site.install("addon", group="tensorbus.plugins", manifest=manifest, extension=SEGFAULT)
    ask = "import tensorbus as tb; tb.crash" if name == "addon" else "devices()"
    path = os.pathsep.join([str(site.folder), str(site.folder.parent / "only")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", PRELUDE + ask], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode < 0
    request = "device_count()" if name == "aborts" else "importing it"
    assert f'File "<plugin tb-{name} 1.0: {request}>", line' in done.stderr


def test_an_addon_is_imported_when_its_op_or_device_is_asked_for(site: Site) -> None:
    endless = "import time; time.sleep(1000)\n"
    group = "tensorbus.plugins"
    site.install("npu", device="host = true")
    site.install("gpu")
    for name, extra in (("op", 'ops = ["far"]\n'), ("kernels", 'ops = []\n[kernels]\nfor = ["gpu"]\n')):
        manifest = f'[plugin]\nname = "{name}"\napi = ">=0.1"\n{extra}'
        site.install(name, group=group, extension=endless, manifest=manifest)
    site.run(
        """
        import tensorbus as tb
        check(device("npu").is_available())
        check(not hasattr(tb, "near"))
        check(not any(name.startswith(("tb_op", "tb_kernels")) for name in sys.modules))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check(not hasattr(tb, "far") and not hasattr(tb, "far"))
            check(device("gpu").is_available())
        texts = [str(each.message) for each in caught]
        check(len(texts) == 2, texts)
        for text, name in zip(texts, ("op", "kernels")):
            check(f"plugin '{name}' of tb-{name} 1.0 is left out: importing it failed: no ans" in text, text)
        """,
        TENSORBUS_PROBE_TIMEOUT="1",
    )
