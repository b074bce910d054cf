"""What the documents show works as it stands there: programs run, the device of devices.md passes the kit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus import plugins

ROOT = Path(__file__).parents[2]
DEVICES = "docs/devices.md"


def blocks(document: str, language: str = "python") -> list[str]:
    """Return the code blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(*arguments: str, path: Path, **changes: str) -> str:
    """Run Python with packages that lie in ``path``; return what it printed."""
    search = os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=600, check=False, cwd=path,
        env={**os.environ, "PYTHONPATH": search, "TENSORBUS_DEFAULT_DEVICE": "cpu", **changes},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def install(folder: Path, name: str, entry_points: str, modules: dict[str, str]) -> None:
    """Lay a distribution down as an installer does: a package, and metadata with its entry points."""
    points = (point.split(":") for point in entry_points.split())
    package = folder / name
    package.mkdir()
    for file, text in {"__init__.py": "", **modules}.items():
        (package / file).write_text(text, encoding="utf-8")
    metadata = folder / f"{name}-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{point} = {name}.extension\n" for group, point in points)
    )


@pytest.fixture
def npu(tmp_path: Path) -> Path:
    """The device of devices.md, and the packages that add a kernel and an op to it."""
    _, manifest, _, short = blocks(DEVICES, "toml")
    extension, device, kernels, kernel_only, _, op_only = blocks(DEVICES)
    modules = {
        "extension.py": extension,
        "device.py": device,
        "kernels.py": kernels,
        "manifest.toml": manifest,
    }
    plugin = '[plugin]\nname = "{}"\napi = ">=0.1,<1"\n'
    install(tmp_path, "tensorbus_npu", "tensorbus.devices:npu", modules)
    install(
        tmp_path, "npu_short", "tensorbus.plugins:npu-short",
        {"extension.py": kernel_only, "manifest.toml": short},
    )  # fmt: skip
    install(
        tmp_path, "softcap_op", "tensorbus.plugins:softcap",
        {"extension.py": op_only, "manifest.toml": plugin.format("softcap")},
    )  # fmt: skip
    return tmp_path


@pytest.mark.full
def test_the_device_passes_the_kit(npu: Path) -> None:
    shown = run("-m", "tensorbus", "conformance", "--device", "npu", "--quick", "-n", "2", path=npu)
    assert "failed" not in shown
    assert "native" in shown


def test_the_kernel_is_taken_and_the_op_runs_everywhere(npu: Path) -> None:
    program = """
import tensorbus as tb
x = tb.asarray([[1.0, 2.0, 3.0]], device="npu")
assert tb.explain("softmax", x).decisions[0].chosen.kernel.name == "short"
for device in ("cpu", "npu", "refdev"):
    y = x.detach().to(device).requires_grad_()
    tb.softcap(y).sum().backward()
    print(device, round(y.grad[0, 0].item(), 4))
"""
    assert run("-c", program, path=npu).splitlines()[-3:] == ["cpu 0.9989", "npu 0.9989", "refdev 0.9989"]


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    """Install the package of connecting.md: a communicator, a store, a launcher."""
    project, manifest = blocks("docs/connecting.md", "toml")
    modules = dict(
        zip(
            ("extension.py", "communicator.py", "store.py", "launcher.py"),
            blocks("docs/connecting.md"),
            strict=True,
        )
    )
    points = "tensorbus.communicators:pipes tensorbus.stores:sqlite tensorbus.launchers:nice"
    stated = re.findall(r'entry-points\."(.*?)"\]\n(\w+) = "tensorbus_pipes.extension"', project)
    assert [":".join(each) for each in stated] == points.split()
    install(tmp_path, "tensorbus_pipes", points, {**modules, "manifest.toml": manifest})
    return tmp_path


def test_the_package_that_connects_ranks(pipes: Path) -> None:
    (pipes / "train.py").write_text("""
import os
import tensorbus as tb
from tensorbus import distributed as dist

dist.init(prefer="pipes", timeout=60)
rank = dist.get_rank()
x = tb.ones(3, dtype="bfloat16") * rank
dist.all_reduce(x)
store = dist.open_store(os.environ["TENSORBUS_STORE"])
if rank == 0:
    assert (store.add("n", 2), store.add("n", 3), store.get("n")) == (2, 5, b"5")
    assert store.compare_set("k", b"", b"a") == b"a" == store.compare_set("k", b"b", b"c")
    assert store.compare_set("k", b"a", b"c") == b"c"
    assert (store.delete_key("k"), store.delete_key("k"), store.check(["k"])) == (True, False, False)
    try:
        store.get("k", 0.05)
    except dist.DistributedTimeoutError:
        pass
    else:
        raise AssertionError("a key that is not there was found")
print(x.tolist(), dist.records()[0].communicator, os.nice(0) > 6)
""")
    command = ["-m", "tensorbus", "run", "--launcher", "nice", "-o", "level=7", "-n", "3"]
    shown = run(*command, "--store", f"sqlite://{pipes}/store", "train.py", path=pipes)
    assert sorted(shown.splitlines()) == [f"[{rank}] [3.0, 3.0, 3.0] pipes True" for rank in range(3)]
    served = run(*command[:5], "-n", "2", "-m", "this", path=pipes)
    assert served.count("Beautiful is better than ugly.") == 2


@pytest.mark.full
def test_its_communicator_passes_the_kit(pipes: Path) -> None:
    kit = ["-m", "tensorbus", "conformance", "--communicator", "pipes", "--device", "cpu", "--ranks", "3"]
    run(*kit, "--quick", "--dtypes", "float32,bool", path=pipes)  # exit code 1 for a finding


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def cdev(tmp_path: Path) -> Path:
    """Install the device with a language and a schedule of its own."""
    dialect, schedules, compiler, memory, device, extension = blocks("docs/dialects.md")
    dtypes = 'dtypes = ["bool", "uint8", "int32", "int64", "uint32", "uint64", "float32"]\n'
    modules = {
        "extension.py": extension,
        "device.py": device,
        "memory.py": memory,
        "compiler.py": compiler,
        "dialect.py": dialect,
        "schedules.py": schedules,
        "manifest.toml": '[plugin]\nname = "cdev"\napi = ">=0.1,<1"\n[device]\ntype = "cdev"\n' + dtypes,
    }
    install(tmp_path, "tensorbus_cdev", "tensorbus.devices:cdev", modules)
    return tmp_path


@pytest.mark.full
@needs_cc
def test_the_device_with_a_language_passes_the_kit(cdev: Path) -> None:
    ops = "add,sum,matmul,softmax,gather,sort,where,cumulative_sum,cast"
    command = ["-m", "tensorbus", "conformance", "--device", "cdev", "--quick", "-n", "2", "--ops", ops]
    shown = run(*command, path=cdev)
    assert "failed" not in shown
    assert "native" in shown


@needs_cc
def test_its_schedule_writes_kernels_of_eager_calls_and_of_programs(cdev: Path) -> None:
    program = """
import dataclasses, os, pathlib
import tensorbus as tb
import tensorbus_cdev.schedules as schedules

theirs, written = schedules.HALVES, []

def build(request, launches):
    written.append(request.root.op)
    return theirs.build(request, launches)

schedules.HALVES = dataclasses.replace(theirs, build=build)
x = tb.full((1000,), 2.0, device="cdev")
assert (tb.exp(x) * 3).tolist() == [22.16716766357422] * 1000
assert "exp" in written, written
for length in (1000, 999):
    written.clear()
    compiled = tb.compile(lambda x: tb.sqrt(x) + 1)
    assert compiled(tb.full((length,), 4.0, device="cdev")).tolist() == [3.0] * length
    assert bool(written) == (length == 1000), (length, written)
"""
    folder = cdev / "dump"
    run("-c", program, path=cdev, TENSORBUS_DUMP=str(folder))
    shown = "\n".join(file.read_text() for file in folder.rglob("*schedules*"))
    assert "halves: two elements of a vector at a time" in shown
    assert "it is no vector of even length" in shown


@pytest.mark.parametrize("number", range(4))
def test_each_program_of_the_readme_runs_by_itself(number: int, tmp_path: Path) -> None:
    shown = blocks("README.md")
    assert len(shown) == 4
    run("-c", shown[number].replace('"opencl', '"refdev'), path=tmp_path)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("docs/attention.md", "(2, 4, 300, 64) (4,)\nBlockMask(shape=(1, 1, 300, 300)"),
        ("docs/compile.md", ""),
        ("docs/distributed.md", "((StridedShard(dim=0), Shard(dim=0)), (8, 8), (30, 8))"),
        ("docs/func.md", "(5, 8, 4)"),
        ("docs/kernels.md", ""),
        ("docs/modes.md", "log1p"),
        ("docs/streams.md", "8192.0"),
        ("docs/views.md", "[1.0, 3.0, 3.0]\nTrue\nArgumentError\nAutogradError\n[[0.0, 0.0], [7.0, 0.0]]"),
    ],
)
def test_programs_run(document: str, wanted: str, tmp_path: Path) -> None:
    named = ["opencl:0", "triton", "leaky_blocks", "TEXT"]
    if "fake" not in plugins.communicators():
        named += ["fake://", "plan.plan("]  # blocks that need tensorbus-fake, installed
    shown = [block for block in blocks(document) if not any(word in block for word in named)]
    assert shown
    program = tmp_path / "program.py"
    program.write_text("import tensorbus as tb\n" + "\n".join(shown), encoding="utf-8")
    assert wanted in run(str(program), path=tmp_path)
