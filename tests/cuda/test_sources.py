"""Generated CUDA C++ compiles: of every op of the table, for the processors of two generations."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fused import program_of, record
from fused_programs import EPILOGUES, FUSION
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.layout import Layout
from tensorbus.lowering.program.lower import lower
from tensorbus.ops.definition import Spec, table
from tensorbus.ops.indexing.gather_scatter import scatter
from tensorbus_conformance.sources import planned
from tensorbus_cuda.attention import attention_mask as masks
from tensorbus_cuda.dialect import OPTIONS, dialect
from tensorbus_cuda.sort import kernels_sort as sorting

pytestmark = pytest.mark.full

CUDA = dialect(132)
HEAD = re.compile(r'(extern "C" __global__ void __launch_bounds__\(TB_THREADS\(\d+\)\) )')
NVCC = shutil.which("nvcc")
PLAIN = (dt.float32, dt.int64, dt.bool_, dt.complex64)


def sources(dtypes: tuple[dt.DType, ...], ops: tuple[str, ...] = ()) -> dict[str, str]:
    """Return sources by op, dtype and name of the kernel: one each of those that differ in shapes alone."""
    results: dict[str, str] = {}
    for plan in planned(CUDA, ops, dtypes):
        for step in plan.program.steps:
            kernel = step.launch.kernel
            key = f"{plan.trial.op.name} {plan.trial.dtype} {kernel.name}"
            if key not in results:
                results[key] = render(kernel, CUDA)
    return results


def as_one_text(actual: dict[str, str]) -> str:
    """Return one source: what kernels have in common once, then each under a name of its own."""
    helpers: dict[str, None] = {}
    kernels = []
    for number, (key, source) in enumerate(actual.items()):
        before, head, kernel = HEAD.split(source.removeprefix(CUDA.prologue))
        helpers |= dict.fromkeys(re.split(r"(?m)^(?=static __device__)", before))
        kernels.append(f"// {key}\n{head}k{number}_{kernel}")
    return "".join((CUDA.prologue, *helpers, "\n", *kernels))


def compiled(text: str, folder: Path, *options: str) -> None:
    source = folder / "kernels.cu"
    source.write_text(text)
    command = [str(NVCC), *OPTIONS, "--Werror", "all-warnings", "-diag-suppress", "177,186", *options]
    done = subprocess.run(
        [*command, "-o", str(folder / "made"), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc to compile CUDA C++ with")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_op_compiles(arch: str, tmp_path: Path) -> None:
    result = sources(PLAIN)
    assert len({key.split()[0] for key in result}) > 120
    compiled(as_one_text(result), tmp_path, "--ptx", f"-arch={arch}")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_prims_compile_in_the_other_dtypes(arch: str, tmp_path: Path) -> None:
    """Composites are made of them."""
    others = tuple(d for d in CUDA.types if d not in PLAIN)
    prims = tuple(op.name for op in table if op.is_prim and op.family != "transfer")
    compiled(as_one_text(sources(others, prims)), tmp_path, "--ptx", f"-arch={arch}")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_of_many_ops_assemble(arch: str, tmp_path: Path) -> None:
    """Whole programs: rows in registers, gradients, losses, updates, in four dtypes."""
    results: dict[str, str] = {}
    for name, case in {**FUSION, **EPILOGUES}.items():
        for kind in (dt.float32, dt.float16, dt.bfloat16, dt.float64):
            specs = [Spec(x.shape, kind if x.dtype.is_floating else x.dtype) for x in case.specs]
            for kernel in program_of(record(case.function, *specs), CUDA.target)[1].kernels():
                source = render(kernel, CUDA)
                results.setdefault(source, f"{name} {kind} {kernel.name}")
    assert len(results) > 100
    compiled(
        as_one_text({key: source for source, key in results.items()}), tmp_path, "--cubin", f"-arch={arch}"
    )


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_what_is_written_in_ptx_assembles(arch: str, tmp_path: Path) -> None:
    """Only the assembler reads what ``asm`` holds: the conversions of 16-bit floats."""
    text = as_one_text(sources((dt.float16,), ("add", "sum", "cast", "scatter")))
    assert "cvt.rn.f16.f32" in text
    compiled(text, tmp_path, "--cubin", f"-arch={arch}")


@needs_nvcc
def test_attention_by_programs_compiles(tmp_path: Path) -> None:
    """In the narrow dtypes; of float32 it is among all ops."""
    result = sources((dt.float16, dt.bfloat16), ("flex_attention", "flex_attention_gradients"))
    assert sum("tb_attention" in key for key in result) >= 6
    compiled(as_one_text(result), tmp_path, "--ptx", "-arch=sm_90")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sorts_of_rows_assemble(arch: str, tmp_path: Path) -> None:
    """Rows of the longest length that is served need no more shared memory than a block has."""
    parts = []
    for dtype in (dt.int8, dt.uint16, dt.bfloat16, dt.float32, dt.float64):
        for length in (49, 600, 4096, 8192):
            for places in (False, True):
                if sorting.serves(dtype, length):
                    _, text = sorting.source(dtype, length, descending=places, places=places)
                    parts.append(f"namespace n{len(parts)} {{\n{text}\n}}")
    names = ("LENGTH", "PER_THREAD", "THREADS", "PLACE")
    ends = "".join(f"#undef {name}\n" for name in names)
    text = "".join(
        re.sub(r"tb_(arg)?sort_rows_\w+", f"k{number}", part) + f"\n{ends}"
        for number, part in enumerate(parts)
    )
    assert len(parts) == 38
    compiled(text, tmp_path, "--cubin", f"-arch={arch}")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sorts_of_long_rows_compile(arch: str, tmp_path: Path) -> None:
    parts = []
    for dtype in (dt.int8, dt.uint16, dt.bfloat16, dt.float32, dt.float64):
        for places in (False, True):
            _, text = sorting.long_source(dtype, descending=places, places=places)
            parts.append(f"namespace n{len(parts)} {{\n{text}\n}}\n#undef GRID_STRIDE\n")
    text = "".join(
        re.sub(r"tb_(arg)?sort_long_\w+?_(keys|placed)", rf"k{k}_\2", x) for k, x in enumerate(parts)
    )
    compiled(text, tmp_path, "--cubin", f"-arch={arch}")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_masks_of_attention_compile(arch: str, tmp_path: Path) -> None:
    kinds = [(mask, dtype) for dtype in (dt.float16, dt.bfloat16) for mask in (dt.bool_, dtype)]
    results = [masks.source(*kind, large=large) for kind in kinds for large in (False, True)]
    assert len({name for name, _ in results}) == 8
    compiled("".join(text for _, text in results), tmp_path, "--cubin", f"-arch={arch}")


def test_rows_that_do_not_fit_are_not_served() -> None:
    assert sorting.serves(dt.float32, 8192)
    assert not sorting.serves(dt.float32, 8193)
    assert not sorting.serves(dt.float64, 8192)
    assert not sorting.serves(dt.float32, 48)
    assert not sorting.serves(dt.complex64, 100)


def test_positions_divide_in_32_bits_where_they_are_small() -> None:
    """Dividing 64 bits takes a GPU several times as long. Of five axes the outer three are walked as one."""
    shape = (2, 3, 4, 5, 6)
    operand = Node(op="input", spec=Spec(shape, dt.float32))
    copy = Node(op="cast", inputs=(operand,), attrs={"dtype": dt.float32}, spec=operand.spec)
    turned = Layout(0, shape, (1, 2, 6, 24, 120), 0, None)
    program = lower(Graph(inputs=(operand,), outputs=(copy,)), [turned], CUDA.target)
    (kernel,) = program.kernels()
    assert "tb_quotient(" in render(kernel, CUDA).removeprefix(CUDA.prologue)


def test_the_dialect_takes_no_headers() -> None:
    """NVRTC has none: a kernel is compiled where only CuPy is installed."""
    for source in sources(
        (dt.float16, dt.bfloat16, dt.complex128), ("add", "exp", "sort", "scatter")
    ).values():
        assert "#include" not in source


def test_every_dtype_is_there() -> None:
    assert set(dt.ALL) == set(CUDA.types)


@pytest.mark.parametrize(
    ("name", "cast"),
    [("int32", "(unsigned int *)"), ("int64", "(unsigned long long *)"), ("int16", ""), ("float32", "")],
)
def test_whole_numbers_are_added_in_one_step(name: str, cast: str) -> None:
    """Their sum is the same in any order; that of others is not, or the language has no such step."""
    dtype = dt.dtype(name)
    operands = (Spec((9, 40), dtype), Spec((2000, 40), dtype), Spec((2000,), dt.int64))
    _, program = program_of(record(lambda x, v, i: scatter(x, v, i, mode="add"), *operands), CUDA.target)
    text = "".join(render(kernel, CUDA) for kernel in program.kernels())
    assert (f"atomicAdd({cast}out + (" in text) == bool(cast)
    assert ("atomicAdd" in text) == bool(cast)
