"""Launchers of packages: found by name, refused with what there is, and supervised like core's own."""

from __future__ import annotations

from throwaway import Site

SCRIPTED = """
from tensorbus.backend_api import hookimpl
from tensorbus.errors import ArgumentError

class Ranks:
    def __init__(self, request, show, log):
        self.request, self.show, self.log, self.looks = request, show, log, 0
        log.append((request.size, request.command, request.environment["TENSORBUS_RESTART"]))

    def codes(self):
        self.looks += 1
        if self.request.environment["TENSORBUS_RESTART"] == "1":
            return [0, 0]
        return [1, None] if self.looks < 2 else [1, 7]  # rank 0 lost rank 1, which is seen later

    def drain(self, number):
        words = "tensorbus.errors.DistributedError: rank 1 is gone" if number == 0 else "mine"
        self.show(number, words, self.request.environment["TENSORBUS_RESTART"] == "0")

    def end(self):
        self.log.append("end")

class Launcher:
    def __init__(self, log):
        self.log = log
    def start(self, request, show):
        return Ranks(request, show, self.log)
    def close(self):
        self.log.append("close")

class Factory:
    options = {"crew": "how many sailors"}
    log = []
    def open(self, options):
        if not options.get("crew", "1").isdecimal():
            raise ArgumentError(f"carrier: crew must be a number, got {options['crew']!r}.")
        return Launcher(self.log)

FACTORY = Factory()

@hookimpl
def tensorbus_launcher(name):
    return FACTORY
"""
USES = """
import io
from tensorbus.distributed.launch.launcher import run

out, err = io.StringIO(), io.StringIO()
check(run(["a", "b"], 2, launcher="carrier", options={"crew": "3"}, max_restarts=1, out=out, err=err) == 0)
import tb_carrier.extension as carrier
log = carrier.FACTORY.log
check(log == [(2, ("a", "b"), "0"), "end", (2, ("a", "b"), "1"), "end", "close"], log)
check("rank 1 of 2 ended with exit code 7" in err.getvalue(), err.getvalue())
check(out.getvalue().splitlines()[-1] == "[1] mine", out.getvalue())

for launcher, options, words in [
    ("carier", {}, "no launcher 'carier'. Did you mean 'carrier'? Installed: local, blank, broken, carrier"),
    ("carrier", {"crow": "1"}, "no option 'crow'. Did you mean 'crew'? Options: crew: how many sailors."),
    ("local", {"crew": "1"}, "the launcher 'local' has no option 'crew'. Options: none."),
    ("carrier", {"crew": "x"}, "crew must be a number, got 'x'"),
    ("broken", {}, "the launcher 'broken' of tb-broken 1.0 cannot be used"),
    ("blank", {}, "it must return an object with a method open(options) and a table options"),
]:
    error = error_of(lambda: run(["true"], 1, launcher=launcher, options=options))
    check(isinstance(error, TensorbusError) and words in str(error), error)
error = error_of(lambda: run(["true"], 1, store="carrier://x"))
check("a store's URL begins with file://" in str(error), error)
states = {s.name: s.state for s in plugins.status() if s.kind == "launcher"}
expected = {"carrier": "ready", "broken": "unavailable", "blank": "unavailable"}
check({name: states[name] for name in expected} == expected, states)
"""


FAULTS = """
import io
from tensorbus.distributed.launch.launcher import run
import tb_carrier.extension as carrier

def fault(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        return error_of(lambda: run(["a"], 2, launcher="carrier", out=io.StringIO(), err=io.StringIO()))
    finally:
        setattr(owner, name, before)

def sunk(*args):
    raise OSError("sunk")

for owner, name, value, words in [
    (carrier.Factory, "open", lambda self, options: None, "open returned 'NoneType', which has no start"),
    (carrier.Factory, "open", sunk, "the launcher 'carrier': open raised OSError: sunk."),
    (carrier.Launcher, "start", lambda *_: 3, "start returned 'int', which has no codes, drain, end"),
    (carrier.Launcher, "start", sunk, "the launcher's start raised OSError: sunk."),
    (carrier.Ranks, "codes", lambda self: "done", "codes are 'done', where one is due for each of 2 ranks"),
    (carrier.Ranks, "codes", lambda self: [0], "codes are [0], where one"),
    (carrier.Ranks, "codes", sunk, "the launcher's codes raised OSError: sunk."),
]:
    error = fault(owner, name, value)
    check(type(error).__name__ == "PluginError" and words in str(error), error)
"""


def test_a_launcher_that_breaks_its_contract_is_named(site: Site) -> None:
    site.install("carrier", group="tensorbus.launchers", extension=SCRIPTED)
    site.run(FAULTS)


def test_a_package_starts_ranks(site: Site) -> None:
    site.install("carrier", group="tensorbus.launchers", extension=SCRIPTED)
    site.install("broken", group="tensorbus.launchers", extension="raise KeyError('sunk')")
    blank = SCRIPTED.partition("class Ranks")[0] + "@hookimpl\ndef tensorbus_launcher(name):\n    return 3\n"
    site.install("blank", group="tensorbus.launchers", extension=blank)
    site.run_beside_all(USES)
    only = {"TENSORBUS_PLUGINS": "carrier,broken,blank"}
    printed = " ".join(site.command("doctor", code=1, environment=only).split())
    assert "--launcher carrier" in printed
    assert "Should work and does not: launcher broken, launcher blank." in printed or (
        "Should work and does not: launcher blank, launcher broken." in printed
    )
    assert "KeyError: 'sunk'" in printed
    site.command("run", "--store", "carrier://x", "-m", "this", code=2)
    site.command("run", "--launcher", "carrier", "-o", "crew=x", "-m", "this", code=2)
    site.command("run", "--launcher", "carrier", "-o", "crew", "-m", "this", code=2)
