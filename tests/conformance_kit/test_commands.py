"""The commands ``conformance`` and ``coverage``, the kit as a pytest plugin: options, reports, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus.cli.coverage import replaced
from tensorbus_conformance import report
from tensorbus_conformance.outcome import Case, Finding, Outcome

ADD = ("--device", "cpu", "--ops", "add", "--dtypes", "float32,int8")


def _run(*arguments: str, code: int = 0, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300, cwd=cwd, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


CRASHING = """
import os
from tensorbus.backend_api import Kernel, hookimpl

@hookimpl
def tensorbus_kernels(device_type):
    kernels = {"sinh": lambda x: os._exit(3), "cosh": lambda x: os.abort()}
    return {op: Kernel(name="crash", function=f, before=("*",)) for op, f in kernels.items()}
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_prints_and_writes_a_report(tmp_path: Path, jobs: str) -> None:
    file = tmp_path / "report.json"
    shown = _run("tensorbus", "conformance", *ADD, "-n", jobs, "--report", str(file))
    assert "2 native" in shown
    row = json.loads(file.read_text())["devices"]["cpu"]["add"]
    assert set(row) == {"float32", "int8"}
    assert row["int8"]["status"] == "native"
    assert row["int8"]["calls"] > 5
    assert row["int8"]["microseconds"] > 0
    assert row["int8"]["findings"] == []


SLOW = """
import time
from tensorbus.backend_api import Kernel, hookimpl

def cosh(x):
    print("here", flush=True)
    time.sleep(600)

@hookimpl
def tensorbus_kernels(device_type):
    return {"cosh": Kernel(name="slow", function=cosh, before=("*",))}
"""


def _installed(folder: Path, name: str, code: str) -> dict[str, str]:
    """Write a package with kernels for cpu; return the environment in which it is installed."""
    package, info = folder / name, folder / f"{name}-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "manifest.toml").write_text(
        f'[plugin]\nname = "{name}"\napi = ">=0.1"\n[kernels]\nfor = ["cpu"]\n'
    )
    (package / "extension.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tensorbus.plugins]\n{name} = {name}.extension\n")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(("jobs", "done"), [("1", "1"), ("2", "[01]")])
def test_a_run_that_is_stopped_reports_what_it_did(
    tmp_path: Path, jobs: str, done: str, how: signal.Signals
) -> None:
    file = tmp_path / "report.json"
    arguments = ("--device", "cpu", "--ops", "acosh,cosh", "--dtypes", "float32", "-n", jobs)
    run = subprocess.Popen(
        [sys.executable, "-m", "tensorbus", "conformance", *arguments, "--report", str(file)],
        stdout=subprocess.PIPE, text=True, env=_installed(tmp_path, "slow", SLOW),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a background job
    )  # fmt: skip
    assert run.stdout is not None
    assert "here" in run.stdout.readline()
    run.send_signal(how)
    shown, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert re.search(f"stopped after {done} of 2 cases: this report is partial", shown)
    data = json.loads(file.read_text())
    assert re.fullmatch(f"stopped after {done} of 2 cases", data["limits"][-1])
    assert "cosh" not in data["devices"].get("cpu", {})
    if done == "1":
        assert data["devices"]["cpu"]["acosh"]["float32"]["calls"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "cpu", "--ops", "ad"), "no op is called 'ad'"),
        (("--device", "cpu", "--dtypes", "float23"), "Did you mean 'float32'"),
        (("--device", "nothing"), "nothing"),
        (("--device", "cpu", "--ops", "add", "--checks", "valu"), "no check is called 'valu'"),
        (("--device", "cpu", "--shard", "3/2"), "--shard 3/2: a number and how many there are is needed"),
        (("--device", "cpu", "--report", "no/such/folder/x.json"), "there is no folder 'no/such/folder'"),
    ],
)
def test_a_wrong_question_is_answered_with_2(arguments: tuple[str, ...], words: str) -> None:
    assert words in _run("tensorbus", "conformance", *arguments, code=2)


def test_the_command_says_which_package_supplies_the_kit() -> None:
    program = (
        "import sys; sys.modules['tensorbus_conformance'] = None;"
        "from tensorbus.cli.app import app; app(['conformance', '--device', 'cpu'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install tensorbus-conformance" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_the_kit_runs_from_its_package_under_pytest(tmp_path: Path, workers: tuple[str, ...]) -> None:
    file = tmp_path / "report.json"
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "tensorbus_conformance", *ADD, *workers)
    shown = _run(*command, "--report", str(file), cwd=tmp_path)
    assert "2 passed" in shown
    assert "conformance of cpu: 2 native" in shown
    assert json.loads(file.read_text())["counts"] == {"cpu": {"native": 2}}


@pytest.mark.full
def test_shards_have_every_case_once(tmp_path: Path) -> None:
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "tensorbus_conformance")
    asked = ("--collect-only", "--device", "cpu", "--dtypes", "float32,int8")

    def cases(*more: str) -> set[str]:
        return {line for line in _run(*command, *asked, *more, cwd=tmp_path).split() if "::" in line}

    first, second = cases("--shard", "1/2"), cases("--shard", "2/2")
    assert first
    assert second
    assert not first & second
    assert first | second == cases()


def test_a_run_of_pytest_that_is_stopped_reports_what_it_did(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--pyargs", "tensorbus_conformance", "--device", "cpu", "--report", str(file)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        while "PASSED" not in run.stdout.readline():
            pass
        run.terminate()
        assert "conformance of cpu" in run.stdout.read()
    assert run.returncode == 2
    data = json.loads(file.read_text())
    assert data["devices"]["cpu"]
    assert data["limits"][0].startswith("stopped after ")


def test_pytest_refuses_a_device_that_is_not_there(tmp_path: Path) -> None:
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "tensorbus_conformance")
    assert "--device nothing" in _run(*command, "--device", "nothing", code=4, cwd=tmp_path)


def test_coverage_as_data() -> None:
    data = json.loads(_run("tensorbus", "coverage", "--device", "cpu", "--json"))
    assert data["ops"]["add"]["float32"] == "native"
    assert set(data["ops"]["log_softmax"].values()) == {"decomposed"}
    assert "Usage" in _run("tensorbus", "coverage", code=2)


def test_the_generated_part_of_a_manifest_is_replaced_and_nothing_else() -> None:
    before = (
        '[plugin]\nname = "x"\n\n# Written by `tensorbus coverage --device x --write`.\n[ops]\nadd = "all"\n'
    )
    new = '# Written by `tensorbus coverage --device x --write`.\n[ops]\nexp = "all"\n'
    assert replaced(before, new) == f'[plugin]\nname = "x"\n\n{new}'
    assert replaced(replaced(before, new), new) == replaced(before, new)
    assert replaced('[plugin]\nname = "x"\n', new) == f'[plugin]\nname = "x"\n\n{new}'


def test_a_report_holds_what_was_found(tmp_path: Path) -> None:
    case = Case(device="npu", op="add", dtype="float32")
    wrong = Outcome(
        case=case, route="native", calls=3, findings=(Finding(check="value", call="add()", problem="off"),)
    )
    assert Outcome.from_dict(json.loads(json.dumps(wrong.as_dict()))) == wrong
    report.write([wrong], tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["counts"] == {"npu": {"failed": 1}}
    assert data["devices"]["npu"]["add"]["float32"]["findings"][0]["problem"] == "off"


@pytest.mark.parametrize("jobs", [(), ("-n", "2")], ids=["one", "two"])
def test_a_kernel_that_crashes_is_a_finding(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    command = (
        "tensorbus",
        "conformance",
        "--device",
        "cpu",
        "--ops",
        "sinh,floor,cosh",
        "--dtypes",
        "float32,float64",
    )
    done = subprocess.run(
        [sys.executable, "-m", *command, *jobs, "--report", str(tmp_path / "report.json")],
        capture_output=True, text=True, timeout=300, check=False,
        env=_installed(tmp_path, "crashing", CRASHING),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "2 native, 4 failed" in done.stdout
    rows = json.loads((tmp_path / "report.json").read_text())["devices"]["cpu"]
    assert rows["floor"]["float64"]["status"] == "native"
    for op, end in (("sinh", "exit code 3"), ("cosh", "(SIGABRT) in <lambda> (extension.py:")):
        for dtype in ("float32", "float64"):
            (result,) = rows[op][dtype]["findings"]
            assert (result["check"], result["call"]) == ("value", f"{op}({dtype}[])")
            assert "the process crashed" in result["problem"]
            assert end in result["problem"]


HANGING = """
import os, signal, time
from tensorbus.backend_api import Kernel, hookimpl

def acosh(x):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    time.sleep(600)

def asinh(x):
    if os.fork() == 0:
        time.sleep(60)
    os._exit(7)

def atanh(x):
    raise SystemExit("x" * 100_000)

@hookimpl
def tensorbus_kernels(device_type):
    return {f.__name__: Kernel(name="odd", function=f, before=("*",)) for f in (acosh, asinh, atanh)}
"""
HANG_ENDS = {
    "acosh": "it has not come back within 20 s (--time-limit): ended in acosh (extension.py:7)",
    "asinh": "the process crashed: it ended with exit code 7",
    "atanh": "(100000 characters) (extension.py:15)",
}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_kernel_that_never_returns_is_a_finding(tmp_path: Path, jobs: str) -> None:
    """So is one that leaves a child behind with the process's pipes, and one that raises no Exception."""
    arguments = ["--device", "cpu", "--ops", "acosh,asinh,atanh,floor", "--dtypes", "float32"]
    arguments += ["--checks", "value", "--time-limit", "20", "-n", jobs]
    done = subprocess.run(
        [sys.executable, "-m", "tensorbus", "conformance", *arguments, "--report", str(tmp_path / "r.json")],
        stdout=subprocess.PIPE, text=True, timeout=300, check=False,
        env=_installed(tmp_path, "hanging", HANGING),
    )  # fmt: skip
    assert done.returncode == 1
    assert "1 native, 3 failed" in done.stdout
    rows = json.loads((tmp_path / "r.json").read_text())["devices"]["cpu"]
    for op, end in HANG_ENDS.items():
        (finding,) = rows[op]["float32"]["findings"]
        assert (finding["check"], finding["call"]) == ("value", f"{op}(float32[])")
        assert end in finding["problem"]
        assert len(finding["problem"]) < 3000


@pytest.mark.full
@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2")], ids=["pytest", "xdist"])
def test_a_kernel_that_never_returns_under_pytest(tmp_path: Path, workers: tuple[str, ...]) -> None:
    file = tmp_path / "report.json"
    command = ["pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "tensorbus_conformance", *workers]
    command += ["--device", "cpu", "--ops", "acosh,floor", "--dtypes", "float32", "--report", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", *command, "--quick", "--time-limit", "30"], stdout=subprocess.PIPE, text=True,
        timeout=300, check=False, cwd=tmp_path, env=_installed(tmp_path, "hanging", HANGING),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    rows = json.loads(file.read_text())["devices"]["cpu"]
    assert rows["floor"]["float32"]["status"] == "native"
    (finding,) = rows["acosh"]["float32"]["findings"]
    assert "(--time-limit)" in finding["problem"] or "the process crashed" in finding["problem"]


@pytest.mark.full
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["pytest", "xdist"])
def test_a_crash_under_pytest_is_a_finding_of_the_report(tmp_path: Path, workers: tuple[str, ...]) -> None:
    file = tmp_path / "report.json"
    command = ["pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "tensorbus_conformance", *workers]
    command += ["--device", "cpu", "--ops", "cosh,floor", "--dtypes", "float32", "--report", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=300, check=False,
        cwd=tmp_path, env=_installed(tmp_path, "crashing", CRASHING),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    rows = json.loads(file.read_text())["devices"]["cpu"]
    assert rows["floor"]["float32"]["status"] == "native"
    assert "the process crashed" in rows["cosh"]["float32"]["findings"][0]["problem"]


def test_what_cannot_be_written_or_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    kit = ("tensorbus", "conformance", *ADD)
    assert "this is a folder" in _run(*kit, "--report", str(tmp_path), code=2)
    assert "--time-limit nan" in _run(*kit, "--time-limit", "nan", code=2)
    assert "--jobs -1" in _run(*kit, "-n", "-1", code=2)
    missing = str(tmp_path / "nowhere")
    shown = _run("tensorbus", "coverage", "--all", "--markdown", "--reports", missing, code=2)
    assert f"--reports {missing}" in shown
