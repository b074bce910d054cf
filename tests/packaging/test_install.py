"""The wheels in a clean environment: what is found, what an import brings with it, what the commands say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import clean_environment

ARRAYS = ("numpy", "ml_dtypes", "cupy", "pyopencl", "mlx", "torch", "jax", "scipy", "pandas")
BACKENDS = ("tensorbus_cpu", "tensorbus_cuda", "tensorbus_opencl", "tensorbus_metal", "tensorbus_refdev")

pytestmark = pytest.mark.full


def _output(*command: object) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _python(python: Path, program: str) -> str:
    return _output(python, "-c", program)


def test_an_import_brings_no_array_library_and_no_backend(clean_python):
    program = "import sys, json, tensorbus, tensorbus.backend_api; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.partition(".")[0] for name in json.loads(_python(clean_python, program))}
    assert "tensorbus" in loaded
    assert not loaded & {*ARRAYS, *BACKENDS}


def test_a_device_brings_only_its_own_package(clean_python):
    program = (
        "import sys, json, tensorbus; tensorbus.device('refdev');"
        "print(json.dumps([n for n in sys.modules if n.startswith('tensorbus_') and '.' not in n]))"
    )
    assert json.loads(_python(clean_python, program)) == ["tensorbus_refdev"]


def test_every_device_is_found_without_importing_it(clean_python):
    program = (
        "import sys, json, tensorbus.plugins as p; found = p.known_types();"
        "assert not [n for n in sys.modules if n.startswith('tensorbus_')]; print(json.dumps(found))"
    )
    assert json.loads(_python(clean_python, program)) == ["cpu", "cuda", "metal", "opencl", "refdev"]


def test_it_computes_on_cpu_and_refdev(clean_python):
    program = (
        "import tensorbus as tb\n"
        "for name in ('cpu', 'refdev'):\n"
        "    with tb.device(name):\n"
        "        print(tb.softmax(tb.asarray([[0.0, 0.0]])).tolist())\n"
        "print(tb.__version__, tb.get_default_device())"
    )
    assert _python(clean_python, program).split("\n")[:3] == ["[[0.5, 0.5]]", "[[0.5, 0.5]]", "0.1.0 cpu:0"]


def test_the_command_line_lists_the_devices(clean_python):
    rows = json.loads(_output(clean_python.with_name("tensorbus"), "devices", "--json"))
    assert {"cpu", "cuda", "metal", "opencl", "refdev"} <= {row["device"].partition(":")[0] for row in rows}
