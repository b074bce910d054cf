"""Attention by functions on the tensor cores: what takes it, that its source compiles, what it computes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.decompose.tracer import graph_of_op
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import Launch
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.nn.attention import create_block_mask, flex_attention
from tensorbus.nn.attention.score_capture import capture
from tensorbus.ops.definition import Spec
from tensorbus_cuda import device as cuda
from tensorbus_cuda.dialect import OPTIONS, dialect, native

import cuda_host

NVCC = shutil.which("nvcc")
CUDA = dialect(132, 90, 227 << 10)
NAME = "flex_attention"


@dataclass(frozen=True)
class Case:
    """Shapes of query, key and value, the functions of what is captured, and the length of the blocks."""

    query: tuple[int, int, int, int]
    key: tuple[int, int, int]
    deep: int
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    captured: tuple[int, ...] = ()
    block: int = 128
    dtype: str = "bfloat16"
    scale: float | None = None


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def holes(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return ((q + kv) % 3 != b) & (q != 3) & (q + 40 >= kv)


def capped(s: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return 20 * tb.tanh(s / 20)


def documents(number: Any) -> Any:
    return lambda b, h, q, kv: (q >= kv) & (number[q] == number[kv])


def biased(bias: Any) -> Any:
    return lambda s, b, h, q, kv: s + bias[h, q, kv] * (kv - q) / 64


def thirds(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return ((q + kv) % 3 != b) & ((kv < 130) | (kv >= 390))


PARTS = {
    "one query of heads that share": Case((2, 8, 1, 128), (2, 2, 1300), 128),
    "one query, blocks": Case((2, 8, 1, 64), (2, 2, 1201), 64, capped, thirds),
    "one query, a bias": Case((1, 6, 1, 40), (1, 3, 900), 33, biased, None, (6, 1, 900), dtype="float16"),
    "one query, keys of one batch": Case((3, 3, 1, 96), (1, 3, 777), 80, None, thirds, block=96),
    "few queries": Case((1, 4, 7, 256), (1, 4, 600), 256, None, thirds, block=32, dtype="float16"),
    "some queries": Case((1, 2, 40, 64), (1, 1, 2000), 64, capped, thirds),
    "many heads that share": Case((1, 24, 1, 64), (1, 1, 1024), 64, scale=-0.2),
}
"""What has too few queries to fill a card: the keys are cut into parts."""

CASES = PARTS | {
    "plain": Case((2, 4, 256, 128), (2, 4, 256), 128),
    "causal, shared heads": Case((2, 8, 301, 128), (2, 2, 457), 128, mask=causal),
    "changed scores, small blocks": Case((2, 4, 300, 64), (2, 4, 333), 64, capped, causal, block=64),
    "odd widths, odd blocks": Case((2, 4, 77, 20), (2, 4, 91), 33, None, holes, block=48, dtype="float16"),
    "keys of one batch": Case((3, 4, 130, 40), (1, 2, 170), 40, None, holes),
    "widest": Case((1, 2, 200, 256), (1, 2, 200), 256, None, causal, dtype="float16"),
    "wide beside narrow": Case((1, 2, 250, 192), (1, 2, 250), 16, capped, causal),
    "documents": Case((2, 4, 300, 64), (2, 4, 300), 64, None, documents, (300,)),
    "a bias": Case((1, 4, 130, 96), (1, 4, 150), 96, biased, None, (4, 130, 150)),
    "a negative scale": Case((1, 2, 100, 16), (1, 2, 100), 16, None, causal, scale=-0.3),
}


def functions(case: Case, captured: Any) -> tuple[Any, Any]:
    """Return the score_mod and the mask_mod."""
    score = case.score(captured) if case.captured and case.score else case.score
    mask = case.mask(captured) if case.captured and case.mask else case.mask
    return score, mask


def programs(case: Case, dtype: str = "", target: Any = CUDA.target) -> list[Program]:
    """Return the programs of a call and of its derivative, for values in C order."""
    kind = dt.dtype(dtype or case.dtype)
    state = None
    if case.captured:
        state = tb.zeros(case.captured, dtype=tb.float32 if case.score else tb.int64, device="cpu")
    result = capture(*functions(case, state), dt.float32, tb.Device("cpu", 0))
    extra = [Spec(x.shape, x.dtype) for x in result.tensors]
    blocks = None
    if case.mask is not None:
        blocks = (case.block, case.block)
        rows, columns = (-(-n // case.block) for n in (case.query[2], case.key[2]))
        extra.insert(0, Spec((case.query[0], 1, rows, columns), dt.uint8))
    operands = [
        Spec(case.query, kind),
        Spec((*case.key, case.query[3]), kind),
        Spec((*case.key, case.deep), kind),
    ]
    results = [Spec((*case.query[:3], case.deep), kind), Spec(case.query[:3], dt.float32)]
    attrs = {
        "program": result.program, "scale": case.scale or 0.125, "enable_gqa": True, "block_size": blocks,
        "visits": None,
    }  # fmt: skip
    done = []
    for op, specs in (
        (NAME, [*operands, *extra]),
        (f"{NAME}_gradients", [*results, *results, *operands, *extra]),
    ):
        layouts = [packed(k, s.shape) for k, s in enumerate(specs)]
        done.append(lower(graph_of_op(op, specs, attrs), layouts, target))
    return done


def test_the_choice_and_its_reasons() -> None:
    """Half precision on processors that have the instructions; all else as before, and the dump says why."""
    case = CASES["causal, shared heads"]
    both = [program.schedules() for program in programs(case)]
    assert "online softmax on tensor cores" in both[0]
    assert "two passes on tensor cores" in both[1]
    for changed, why in (
        ({"dtype": "float32"}, "takes float16 and bfloat16"),
        ({"target": dialect(132, 75, 64 << 10).target}, "needs compute capability 8.0"),
        ({"target": dialect(132, 80, 48 << 10).target}, "bytes of shared memory"),
    ):
        for program in programs(case, **changed):
            text = program.schedules()
            assert why in text
            assert "on tensor cores: a tile" not in text
    few = programs(Case((2, 8, 1, 64), (2, 2, 99), 64))[0].schedules()
    assert "queries or more" in few
    assert "99 keys are too few to be cut" in few
    for case in PARTS.values():
        assert "parts of the keys on tensor cores: queries" in programs(case)[0].schedules()
    many = programs(Case((8, 16, 1024, 64), (8, 16, 1024), 64))[0].schedules()
    assert "tiles of queries fill the device" in many


def test_lengths_are_arguments() -> None:
    """One text serves all lengths, strides and batches: nothing is compiled again."""
    short, long = (
        Case((1, 4, 40, 64), (1, 4, 50), 64, capped, causal),
        Case((3, 8, 900, 64), (3, 2, 77), 64, capped, causal),
    )
    texts = [{render(k, CUDA) for p in programs(case) for k in p.kernels()} for case in (short, long)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 4


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="there is no nvcc to compile CUDA C++ with")
@pytest.mark.parametrize(("architecture", "shared"), [(80, 163 << 10), (90, 227 << 10)])
def test_kernels_assemble(architecture: int, shared: int, tmp_path: Path) -> None:
    """Only the assembler reads what ``asm`` holds."""
    arch, target = native(str(architecture)), dialect(132, architecture, shared).target
    for name in ("odd widths, odd blocks", "documents", "one query, blocks", "few queries"):
        for program in programs(CASES[name], target=target):
            assert "on tensor cores" in program.schedules()
            for kernel in program.kernels():
                source = tmp_path / "kernel.cu"
                source.write_text(render(kernel, CUDA))
                command = [str(NVCC), *OPTIONS, "--Werror", "all-warnings", "-diag-suppress", "177,186"]
                command += [
                    f"-gencode=arch=compute_{arch},code=sm_{arch}",
                    "--cubin",
                    "-o",
                    str(tmp_path / "made"),
                    str(source),
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{kernel.name}: {done.stderr}"


def _share(actual: Any, expected: Any) -> float:
    got, right = actual.to(tb.float64).numpy(), expected.numpy()
    seen = np.isfinite(right)
    assert (np.isfinite(got) == seen).all()
    error = np.linalg.norm(np.where(seen, got - np.where(seen, right, 0), 0))
    return float(error / np.linalg.norm(np.where(seen, right, 0)))


def _operands(case: Case, rng: np.random.Generator) -> tuple[list[Any], Any, Any]:
    """Return query, key, value and a gradient, the gradient of the logarithms, and what is captured."""
    shapes = (case.query, (*case.key, case.query[3]), (*case.key, case.deep), (*case.query[:3], case.deep))
    drawn = [tb.asarray(rng.standard_normal(s), device="cpu").to(case.dtype) for s in shapes]
    numbers = np.arange(np.prod(case.captured, dtype=int)).reshape(case.captured)
    weights = tb.asarray(rng.standard_normal(case.query[:3]), device="cpu")
    return drawn, weights, tb.asarray(np.sin(numbers) if case.score else numbers // 97, device="cpu")


def _run(
    case: Case, device: str, wide: bool, operands: tuple[list[Any], Any, Any], compiled: bool
) -> list[Any]:
    """Return the result, the logarithms and the gradients; ``wide``: of float64."""
    drawn, weights, operand = operands
    *leaves, g = [(x.to(tb.float64) if wide else x).to(device).requires_grad_() for x in drawn]
    retained = (operand if wide or not case.score else operand.to(tb.float32)).to(device)
    score, mask = functions(case, retained)
    block = None
    if mask is not None:
        lengths = case.query[2], case.key[2]
        block = create_block_mask(mask, case.query[0], None, *lengths, device=device, BLOCK_SIZE=case.block)
    of_logarithms = weights.to(device)

    def run(q: Any, k: Any, v: Any, g: Any) -> Any:
        scale = case.scale or 0.125
        out, lse = flex_attention(q, k, v, score, block, scale=scale, enable_gqa=True, return_lse=True)
        w = tb.where(tb.isfinite(lse), of_logarithms.to(lse.dtype), 0)
        return out, lse, *tb.grad([out, lse], [q, k, v], [g, w])

    result = (tb.compile(run) if compiled else run)(*leaves, g)
    return [x.detach() for x in result]


def _compare(case: Case, actual: list[Any], expected: list[Any]) -> None:
    """Results are off by their last bits alone."""
    for k, (x, y) in enumerate(zip(actual, expected, strict=True)):
        bits = 24 if k == 1 else 11 if case.dtype == "float16" else 8
        assert _share(x, y) < 2.0 ** ((4 if k == 1 else 1) - bits), k


@pytest.mark.cuda
@pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, compiled: bool, rng: np.random.Generator) -> None:
    """Beside float64 on the processor, of the same operands."""
    case = CASES[name]
    operands = _operands(case, rng)
    _compare(case, _run(case, "cuda", False, operands, compiled), _run(case, "cpu", True, operands, False))


HOST = {
    "by warpgroups": (Case((1, 4, 150, 64), (1, 2, 170), 64, None, causal), 90),
    "by warpgroups, small blocks": (Case((1, 2, 140, 64), (1, 2, 150), 64, capped, holes, block=48), 90),
    "by warps": (Case((2, 2, 77, 20), (1, 2, 91), 33, None, holes, block=48, dtype="float16"), 80),
    "by warps, a bias": (Case((1, 2, 100, 48), (1, 2, 110), 48, biased, None, (2, 100, 110)), 80),
} | {f"in parts, {name}": (case, 90) for name, case in PARTS.items()}


@pytest.mark.full
@pytest.mark.skipif(cuda_host.CANNOT, reason="the host cannot run CUDA C++")
@pytest.mark.parametrize("name", HOST)
def test_values_on_the_host(name: str, rng: np.random.Generator) -> None:
    """All but the instructions: which rows are copied where, what is visited, masked and added up."""
    case, architecture = HOST[name]
    language = dialect(132, architecture, 227 << 10)
    operands = _operands(case, rng)
    drawn, weights, actual = operands
    expected = _run(case, "cpu", True, operands, False)
    *xs, g = [_bits(x) for x in drawn]
    more: list[Any] = []
    if case.mask is not None:
        mask = functions(case, actual)[1]
        lengths = case.query[2], case.key[2]
        block = create_block_mask(mask, case.query[0], None, *lengths, device="cpu", BLOCK_SIZE=case.block)
        states = block.blocks.numpy()
        more.append(np.broadcast_to(states, (case.query[0], 1, *states.shape[2:])))
    if case.captured:
        more.append(actual.numpy().astype(np.float32 if case.score else np.int64))
    forward, backward = programs(case, target=language.target)
    of_logarithms = np.where(np.isfinite(expected[1].numpy()), weights.numpy(), 0).astype(np.float32)

    def shape(launch: Launch) -> Any:
        if not launch.group:
            return (2, 1, 1), (32, 1, 1)
        return (launch.grid[0] // launch.group, 1, 1), (launch.group, 1, 1)

    out, lse = cuda_host.run(forward, language, [*xs, *more], shape)
    result = cuda_host.run(backward, language, [g, of_logarithms, out, lse, *xs, *more], shape)
    _compare(case, [tb.asarray(_widened(x), device="cpu") for x in (out, lse, *result)], expected)


def _bits(x: Any) -> np.ndarray:
    """Return what a kernel reads of a value of half precision."""
    if x.dtype is tb.float16:
        return np.asarray(x.numpy())
    return np.asarray(x.to(tb.float32).numpy().view(np.uint32) >> 16).astype(np.uint16)


def _widened(x: np.ndarray) -> np.ndarray:
    if x.dtype == np.uint16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)
