"""Convolution by cuDNN: where it is chosen, and what it gives, with both derivatives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.backend_api import Call, StridedArray
from tensorbus.func import vmap
from tensorbus_cuda import cudnn
from tensorbus_cuda import device as cuda
from tensorbus_cuda.attention import kernels_attention as attention
from tensorbus_cuda.convolution import kernels_convolution as convolution

on_card = pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")
CUDA = "cuda"
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((4, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
    "odd": ((3, 5, 13, 9), (7, 5, 3, 2), {"padding": (2, 0), "stride": (2, 1)}),
    "1x1": ((2, 24, 7, 7), (10, 24, 1, 1), {}),
    "strided": ((2, 3, 33, 33), (8, 3, 7, 7), {"stride": 2, "padding": 3}),
    "dilated": ((2, 8, 20, 20), (8, 8, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 12, 11, 11), (18, 4, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise": ((2, 16, 12, 12), (16, 1, 3, 3), {"groups": 16}),
    "1d": ((3, 8, 50), (16, 8, 5), {"padding": 2, "stride": 3}),
    "3d": ((1, 4, 6, 7, 8), (6, 4, 3, 3, 3), {"padding": 1}),
    "one": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}


def a_call(op: str, shapes: tuple[tuple[int, ...], ...], out: tuple[int, ...], **attrs: Any) -> Call:
    """Return a call of two operands in float32."""
    return Call(
        op=op, dtypes=(tb.float32, tb.float32), shapes=shapes, attrs=attrs, out_dtype=tb.float32,
        out_shape=out, index=0,
    )  # fmt: skip


def test_without_the_frontend_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "is_installed", lambda: False)
    convolution._served.cache_clear()
    call = a_call(
        "conv", ((1, 1, 4, 4), (1, 1, 3, 3)), (1, 1, 2, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
        groups=1,
    )  # fmt: skip
    try:
        assert "pip install tensorbus-cuda[cudnn12]" in str(convolution.supports(call))
    finally:
        convolution._served.cache_clear()


class _Compiled:
    """What newer frontends keep of a graph below their Python: it notes how it is queued."""

    def __init__(self, queued: list[tuple[Any, ...]]) -> None:
        self._execute = lambda *arguments: queued.append(("whole", *arguments))
        self._execute_plan_at_index = lambda *arguments: queued.append(("at", *arguments))


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        pytest.param({}, ("public", {1: 16}, 32), id="no compiled part"),
        pytest.param({"compiled": True, "selected_engine": object()}, ("public", {1: 16}, 32), id="Python"),
        pytest.param({"_lowered_graph": SimpleNamespace(), "selected_engine": None}, ("public", {1: 16}, 32),
                     id="a compiled part without these functions"),
        pytest.param(
            {"compiled": True, "selected_engine": None, "_plan_index": None, "_plans": [SimpleNamespace()]},
            ("public", {1: 16}, 32), id="no plan is chosen",
        ),
        pytest.param({"compiled": True, "selected_engine": None, "_plans": []}, ("whole", {1: 16}, 32, 7),
                     id="no plans"),
        pytest.param(
            {"compiled": True, "selected_engine": None, "_plans": [SimpleNamespace(cpp_index=None)]},
            ("whole", {1: 16}, 32, 7), id="the library's own choice",
        ),
        pytest.param(
            {"compiled": True, "selected_engine": None, "_plan_index": 1,
             "_plans": [SimpleNamespace(cpp_index=k) for k in (3, 5)]},
            ("at", {1: 16}, 32, 5, 7), id="one of several",
        ),
    ],
)  # fmt: skip
def test_a_graph_is_queued_by_the_compiled_part_of_the_frontend(
    about: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    queued: list[tuple[Any, ...]] = []
    library = cudnn.Library.__new__(cudnn.Library)
    library.handle = SimpleNamespace(backend_handle=7)
    graph = SimpleNamespace(**{"_plan_index": 0, **about})
    graph.execute = lambda places, space, handle: queued.append(("public", places, space))
    if graph.__dict__.pop("compiled", False):
        graph._lowered_graph = _Compiled(queued)
    library._queue(graph)({1: 16}, 32)
    assert queued == [expected]


def test_a_frontend_without_its_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for the library when it is imported. The ops are generated then."""

    def none(index: int) -> None:
        raise OSError("libcudnn.so: cannot open shared object file")

    monkeypatch.setattr(cudnn, "is_installed", lambda: True)
    monkeypatch.setattr(cudnn, "library", none)
    call = a_call(
        "conv", ((1, 1, 4, 4), (1, 1, 3, 3)), (1, 1, 2, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
        groups=1,
    )  # fmt: skip
    attend = a_call(attention.NAME, ((1, 1, 8, 8),) * 3, (1, 1, 8, 8), scale=1.0, is_causal=False)
    caches = convolution._served, attention._served, cudnn.trouble
    for known in caches:
        known.cache_clear()
    hopper = SimpleNamespace(units=[SimpleNamespace(architecture="90")])
    monkeypatch.setattr(attention, "runtime", lambda: hopper)
    try:
        for reason in (
            convolution.supports(call), attention.supports(replace(attend, dtypes=(tb.float16,) * 3))
        ):  # fmt: skip
            assert "cuDNN does not start" in str(reason)
            assert "tensorbus-cuda[cudnn12]" in str(reason)
            assert "libcudnn.so: cannot open" in str(reason)
    finally:
        for known in caches:
            known.cache_clear()


def test_results_of_transposes_that_no_convolution_gives_are_told_apart() -> None:
    attrs = {"stride": (3,), "padding": (0,), "dilation": (4,)}
    shapes = ((1, 1, 5), (1, 1, 2))
    least = 3 * 4 + 4 + 1
    assert convolution._fits((*shapes, (1, 1, least)), attrs)
    assert convolution._fits((*shapes, (1, 1, least + 2)), attrs)
    assert not convolution._fits((*shapes, (1, 1, least + 3)), attrs)


def test_axes_of_length_one_and_missing_axes_get_strides() -> None:
    plane = convolution._plane(StridedArray(None, (2, 1, 5), (5, 77, 1), 0, tb.float32))
    assert (plane.shape, plane.strides) == ((2, 1, 1, 5), (5, 5, 5, 1))
    last = convolution._plane(StridedArray(None, (2, 3, 4, 1), (12, 4, 1, 9), 0, tb.float32))
    assert last.strides == (12, 4, 1, 1)
    turned = convolution._plane(StridedArray(None, (2, 3, 4, 5), (60, 1, 15, 3), 0, tb.float32))
    assert turned.strides == (60, 1, 15, 3)


class _Place:
    ptr = 1 << 12


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "lies", "as_weight"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), 0, True, True),
        ((2, 3, 4, 5), (60, 1, 15, 3), 0, True, True),
        ((2, 3, 4, 5), (60, 20, 5, 1), 4, True, True),
        ((2, 3, 4, 5), (60, 20, 5, 1), 1, False, False),
        ((2, 3, 4, 5), (120, 40, 10, 2), 0, True, False),
        ((2, 3, 4, 5), (0, 20, 5, 1), 0, False, False),
        ((2, 3, 4, 5), (60, 20, 5, -1), 0, False, False),
        ((2, 3, 4, 5), (60, 20, 2, 1), 0, False, False),
        ((1, 3, 4, 1), (0, 4, 1, 0), 0, True, True),
        ((2, 3, 4, 5), (80, 20, 5, 1), 0, True, False),
        ((2, 3, 4, 5), (1, 2, 6, 24), 0, True, False),  # no gaps, in an order that the library gets wrong
        ((2, 1, 1, 2), (1, 4, 4, 2), 0, True, False),
    ],
)
def test_values_that_overlap_or_begin_oddly_are_copied(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, lies: bool, as_weight: bool
) -> None:
    x = StridedArray(_Place(), shape, strides, offset, tb.float32)
    assert convolution._is_served_layout(x) is lies
    assert convolution._is_served_layout(x, weight=True) is as_weight


@pytest.fixture
def precision() -> Iterator[None]:
    """Put the precision of products back."""
    yield
    tb.set_matmul_precision("highest")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """Return a value on the GPU, and the same numbers in float64 on the processor."""
    x = tb.asarray(rng.standard_normal(shape).astype(np.float32), device=CUDA).to(dtype)
    return x, tb.asarray(x.to(tb.float32).numpy().astype(np.float64), device="cpu")


def share(actual: Any, expected: Any) -> float:
    """Return the norm of the error as a part of that of what is expected."""
    got, wanted = actual.to(tb.float32).numpy().astype(np.float64), expected.numpy()
    assert got.shape == wanted.shape
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def convolved(x: Any, w: Any, attrs: dict[str, Any], g: Any = None) -> list[Any]:
    """Return the convolution, and its derivatives by both operands."""
    function = getattr(tb, f"conv{len(w.shape) - 2}d")
    leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
    out = function(*leaves, **attrs)
    g = tb.cos(out.detach()) if g is None else g
    return [out.detach(), *tb.grad(out, leaves, g)]


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_convolution_and_its_derivatives(
    name: str, dtype: str, compiled: bool, rng: np.random.Generator
) -> None:
    x_shape, w_shape, attrs = CASES[name]
    (x, x64), (w, w64) = drawn(rng, x_shape, dtype), drawn(rng, w_shape, dtype)
    shape = convolved(x64, w64, attrs)[0].shape
    g, g64 = drawn(rng, shape, dtype)
    run: Callable[..., list[Any]] = tb.compile(convolved) if compiled else convolved
    for _ in range(3 if compiled else 1):
        for actual, expected in zip(run(x, w, attrs, g), convolved(x64, w64, attrs, g64), strict=True):
            assert actual.dtype == getattr(tb, dtype)
            assert share(actual, expected) < TOLERANCE[dtype]


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_are_taken_as_they_lie(dtype: str, rng: np.random.Generator) -> None:
    x, x64 = drawn(rng, (4, 15, 15, 8), dtype)
    w, w64 = drawn(rng, (16, 3, 3, 8), dtype)
    (image, image64), (wide, wide64) = drawn(rng, (2, 8, 9, 9), dtype), drawn(rng, (16, 8, 3, 5), dtype)
    gaps = tb.conv2d(image[:, :, 1:], wide[..., 1:4])
    assert share(gaps, tb.conv2d(image64[:, :, 1:], wide64[..., 1:4])) < TOLERANCE[dtype]
    views: list[Callable[[Any], Any]] = [
        lambda v: tb.permute_dims(v, (0, 3, 1, 2)),
        lambda v: tb.permute_dims(v, (0, 3, 2, 1))[:, :, 1:, ::2],
        lambda v: tb.flip(tb.permute_dims(v, (0, 3, 1, 2)), axis=2),
        lambda v: tb.broadcast_to(tb.permute_dims(v, (0, 3, 1, 2))[:1], (3, 8, 15, 15)),
    ]
    for view in views:
        kernel = tb.permute_dims(w, (0, 3, 1, 2)), tb.permute_dims(w64, (0, 3, 1, 2))
        for actual, expected in zip(
            convolved(view(x), kernel[0], {"padding": 1}),
            convolved(view(x64), kernel[1], {"padding": 1}),
            strict=True,
        ):
            assert share(actual, expected) < 2 * TOLERANCE[dtype]


@pytest.mark.cuda
@on_card
def test_lengths_may_be_left_open(rng: np.random.Generator) -> None:
    run = tb.compile(lambda x, w: convolved(x, w, {"padding": 1}), dynamic=True)
    w, w64 = drawn(rng, (6, 4, 3, 3), "float32")
    for batch, length in ((2, 9), (3, 12), (5, 7), (2, 9)):
        x, x64 = drawn(rng, (batch, 4, length, length), "float32")
        for actual, expected in zip(run(x, w), convolved(x64, w64, {"padding": 1}), strict=True):
            assert share(actual, expected) < 4e-6


@pytest.mark.cuda
@on_card
def test_examples_with_kernels_of_their_own(rng: np.random.Generator) -> None:
    (x, x64), (w, w64) = drawn(rng, (3, 2, 4, 9, 9), "float32"), drawn(rng, (3, 6, 4, 3, 3), "float32")
    each = vmap(lambda x, w: tb.conv2d(x, w, padding=1))
    assert share(each(x, w), each(x64, w64)) < 2e-6


@pytest.mark.cuda
@on_card
def test_transposed_convolution_with_output_padding(rng: np.random.Generator) -> None:
    transposed = nn.functional.conv_transpose2d
    (x, x64), (w, w64) = drawn(rng, (2, 6, 9, 9), "float32"), drawn(rng, (6, 4, 3, 3), "float32")
    cases = [(1, 0, 0, 1), (2, 1, 1, 1), (2, 0, 2, 3)]
    for stride, padding, more, dilation in cases:
        attrs = {"stride": stride, "padding": padding, "output_padding": more, "dilation": dilation}
        assert share(transposed(x, w, **attrs), transposed(x64, w64, **attrs)) < 2e-6


@pytest.mark.cuda
@on_card
def test_the_precision_is_that_of_products(rng: np.random.Generator, precision: None) -> None:
    (x, x64), (w, w64) = drawn(rng, (8, 64, 28, 28), "float32"), drawn(rng, (64, 64, 3, 3), "float32")
    expected = tb.conv2d(x64, w64, padding=1)
    compiled = tb.compile(lambda x, w: tb.conv2d(x, w, padding=1) + 0)
    actual: dict[str, list[float]] = {}
    for wanted in ("highest", "high", "highest"):
        tb.set_matmul_precision(wanted)
        for run in (lambda x, w: tb.conv2d(x, w, padding=1), compiled, compiled):
            actual.setdefault(wanted, []).append(share(run(x, w), expected))
    assert max(actual["highest"]) < 2e-6
    assert max(actual["high"]) < 2e-3


@pytest.mark.cuda
@on_card
def test_what_is_chosen_is_shown(rng: np.random.Generator) -> None:
    x, w = tb.ones((1, 4, 8, 8), device=CUDA), tb.ones((4, 4, 3, 3), device=CUDA)
    assert "'cudnn'" in str(tb.explain("conv", x, w))
    wide = tb.explain("conv", x.to(tb.float64), w.to(tb.float64))
    assert "takes float16, bfloat16 and float32" in str(wide)


@pytest.mark.cuda
@on_card
def test_results_are_the_same_at_each_run(rng: np.random.Generator) -> None:
    x, _ = drawn(rng, (16, 32, 28, 28), "float32")
    w, _ = drawn(rng, (64, 32, 3, 3), "float32")
    first, *others = (tb.conv2d(x, w, padding=1).numpy() for _ in range(4))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.cuda
@on_card
def test_an_infinity_stays_where_it_is(rng: np.random.Generator) -> None:
    a = rng.standard_normal((1, 8, 16, 16)).astype("f4")
    a[0, 3, 8, 8] = np.inf
    w = np.abs(rng.standard_normal((8, 8, 3, 3))).astype("f4")
    actual = tb.conv2d(tb.asarray(a, device=CUDA), tb.asarray(w, device=CUDA), padding=1).numpy()
    wrong = ~np.isfinite(actual)
    assert wrong[0, :, 7:10, 7:10].all()
    assert wrong.sum() == 8 * 9


@pytest.mark.cuda
@on_card
def test_a_program_that_convolves_and_attends_ends_without_a_word() -> None:
    """The library's binding reports each graph that outlives it on standard error, in hundreds of lines."""
    program = """
import tensorbus as tb
tb.set_default_device("cuda")
conv, x = tb.nn.Conv2d(16, 32, 3, padding=1), tb.randn(4, 16, 14, 14)
step = tb.compile(lambda x: conv(x).sum())
conv(x).sum().backward()
q = tb.randn(2, 4, 64, 64, dtype=tb.bfloat16)
shown = float(step(x)), float(tb.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
