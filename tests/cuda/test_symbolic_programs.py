"""CUDA programs that are lowered once for many sizes: on the host, whose threads take turns, and on a GPU."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.backend_interface.strided_array import StridedArray
from tensorbus.compiler.programs import program_cache
from tensorbus.decompose.decompose import decompose
from tensorbus.decompose.tracer import PRIMS
from tensorbus.dtypes import definition as dt
from tensorbus.executors import call_template, source_lowering, source_program
from tensorbus.executors.source_lowering import DialectLowering
from tensorbus.graph.passes.simplify import simplify
from tensorbus.lowering.ir.builder import Launch, RuntimeArg
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.ir.loop_ir import INDEX, Array, Buffer, LoopKernel, Var
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import sized, steps_of
from tensorbus.ops.definition import Spec
from tensorbus.tracing.plan_env import PlanEnv
from tensorbus.tracing.sym_int import SymInt, substitute
from tensorbus_cuda import device as cuda
from tensorbus_cuda.dialect import dialect

from cuda_host import CANNOT, run
from error_bounds import assert_alike, assert_within, gamma, of_sum

RNG = np.random.default_rng(0)
LANGUAGE = dialect(132)
ON_HOST = pytest.mark.skipif(CANNOT, reason="CUDA C++ runs on the host on Linux, by a C++ compiler")


NO_GPU = cuda.why_unavailable()


def on_gpu(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.cuda(pytest.mark.skipif(NO_GPU is not None, reason=f"cuda: {NO_GPU}")(test))


def lowered_once(function: Callable[[Any], Any], hint: int, shape: tuple[int | None, ...]) -> Any:
    """Return the lengths of a plan and its program; None in ``shape`` is an open length."""
    lengths = PlanEnv()
    symbol = lengths.symbol("s0", hint, least=2)
    whole = tuple(symbol if n is None else n for n in shape)
    x = Node(op="input", attrs={"index": 0}, spec=Spec(whole, dt.float32))
    results = function(PRIMS.wrap(x))
    outputs = results if isinstance(results, tuple) else (results,)
    graph = Graph(inputs=(x,), outputs=tuple(out._value for out in outputs))
    graph = simplify(decompose(graph, lambda op: False))
    program = lower(graph, [packed(0, whole)], LANGUAGE.target)
    for kernel in program.kernels():  # what stands in the source of a kernel is a number, not a length
        arrays = [s.size for s in _statements(kernel.body) if isinstance(s, Array)]
        assert {type(n) for n in (kernel.group, kernel.group_bytes, *arrays)} == {int}, str(kernel)
    return lengths, program


def _statements(body: Any) -> Iterator[Any]:
    for statement in body:
        yield statement
        yield from _statements(getattr(statement, "body", ()))


ROWS, COLUMNS = (None, 64), (16, None)
EXACT: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], tuple[int | None, ...]]] = [
    ("elementwise", lambda x: x * 2 + 1, lambda x: x * 2 + 1, ROWS),
    ("rows", lambda x: (tb.max(x, axis=1), tb.sum(x, axis=1)), lambda x: (x.max(1), x.sum(1)), COLUMNS),
    ("columns", lambda x: (tb.max(x, axis=0), tb.sum(x, axis=0)), lambda x: (x.max(0), x.sum(0)), ROWS),
    ("everything", lambda x: (tb.sum(x), tb.min(x)), lambda x: (x.sum(), x.min()), ROWS),
    ("scan", lambda x: tb.cumulative_sum(x, axis=1), lambda x: x.cumsum(1), COLUMNS),
    ("scan of columns", lambda x: tb.cumulative_sum(x, axis=0), lambda x: x.cumsum(0), ROWS),
    ("sort", lambda x: tb.sort(x, axis=1), lambda x: np.sort(x, 1), COLUMNS),
    ("transpose", lambda x: tb.permute_dims(x, (1, 0)) * 2, lambda x: x.T * 2, ROWS),
    ("joined", lambda x: tb.concat([x, x[1:] * 2], axis=0)[1:], lambda x: np.concatenate([x, x[1:] * 2])[1:],
     ROWS),
]  # fmt: skip
"""Small integers, whose sums are exact in any order."""


@ON_HOST
@pytest.mark.usefixtures("cupy_or_names")
@pytest.mark.parametrize(
    ("hint", "others"),
    [pytest.param(100, (97, 98, 101), id="short"),
     pytest.param(3000, (2999, 2990), marks=pytest.mark.full, id="long")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("function", "expected", "shape"),
    [pytest.param(*c[1:], id=c[0], marks=() if c[0] == "rows" else pytest.mark.full) for c in EXACT],
)
def test_kernels_of_one_lowering_serve_other_sizes(
    function: Callable[[Any], Any], expected: Callable[[Any], Any], shape: tuple[int | None, ...],
    hint: int, others: tuple[int, ...],
) -> None:  # fmt: skip
    from tensorbus_cuda.kernel_launch import sizes

    lengths, program = lowered_once(function, hint, shape)
    assert not lengths.serves_one_size(), lengths.conditions
    holds = lengths.holds()
    assert all(holds(s0=n) for n in (hint, *others)), lengths.conditions
    for n in (*others, *(n for n in (16, 64) if holds(s0=n))):  # these are lengths of other axes, too
        x = RNG.integers(-9, 9, tuple(n if m is None else m for m in shape)).astype("f4")
        results = expected(x)
        for ours, right in zip(
            run(sized(program, substitute({"s0": n})), LANGUAGE, [x], sizes),
            results if isinstance(results, tuple) else (results,),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, right)


@ON_HOST
@pytest.mark.usefixtures("cupy_or_names")
def test_rows_that_grow_have_few_programs() -> None:
    """Softmax of rows of 2 to 600 elements: not one for each length, nor for each remainder."""
    plans: list[Callable[..., bool]] = []
    for n in range(2, 600):
        if not any(holds(s0=n) for holds in plans):
            lengths, _ = lowered_once(lambda x: tb.softmax(x, axis=-1), n, (48, None))
            plans.append(lengths.holds())
            assert plans[-1](s0=n)
    assert len(plans) <= 5


@pytest.mark.usefixtures("cupy_or_names")
def test_a_length_may_come_to_equal_another() -> None:
    """A text as long as its model has heads, or as a head is wide, needs no plan of its own."""

    def several(x: Any) -> Any:
        y = tb.permute_dims(tb.reshape(x, (-1, 6, 64)), (1, 0, 2))
        return tb.softmax(x * 2, axis=-1), tb.softmax(y, axis=-1), tb.reshape(y, (6, -1)) + 1

    lengths, _ = lowered_once(several, 100, (None, 384))
    holds = lengths.holds()
    assert all(holds(s0=n) for n in (63, 64, 65, 384)), lengths.conditions


@ON_HOST
@pytest.mark.usefixtures("cupy_or_names")
@pytest.mark.parametrize("rows", [3, 48])
def test_rows_far_from_those_that_a_plan_was_made_for(rows: int) -> None:
    """Work-items without an element, and as many turns as there is room for: to both ends of its range."""
    from tensorbus_cuda.kernel_launch import sizes

    def several(x: Any) -> Any:
        return tb.softmax(x, axis=-1), tb.argmax(x, axis=-1), tb.argmin(x, axis=-1), tb.max(x, axis=-1)

    lengths, program = lowered_once(several, 100, (rows, None))
    holds = lengths.holds()
    served = [n for n in range(2, 2000) if holds(s0=n)]
    assert served[0] <= 16
    assert served[-1] >= 256
    for n in (served[0], 31, 33, 100, 129, served[-1]):
        x = RNG.integers(-9, 9, (rows, n)).astype("f4")
        x[0], x[1], x[2, n // 2] = -np.inf, 4, np.nan
        e = np.exp(x[3:].astype("f8"))
        out, *best = run(sized(program, substitute({"s0": n})), LANGUAGE, [x], sizes)
        wanted = x.argmax(1), x.argmin(1), x.max(1)
        for ours, right in zip(best, wanted, strict=True):
            np.testing.assert_array_equal(ours, right)
        assert_within(out[1], np.full(n, 1 / n), gamma(n + 8, "float32") / n)
        whole = e / e.sum(1, keepdims=True)
        assert_within(out[3:], whole, gamma(n + 40, "float32") * whole)


@pytest.mark.usefixtures("cupy_or_names")
@pytest.mark.parametrize("hint", [5, 33, 130, 700, 4097])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        *[pytest.param(f, shape, id=name) for name, f, _, shape in EXACT],
        pytest.param(lambda x: tb.softmax(x / 8, axis=-1), (None, None), id="softmax of a square"),
        pytest.param(lambda x: tb.softmax(x, axis=0), (None, 48), id="softmax of columns"),
        pytest.param(
            lambda x: tb.scatter_along_axis(x, x.to(tb.int32), x, mode="add"), (16, None), id="scatter"
        ),
    ],
)
def test_any_length_lowers(function: Callable[[Any], Any], shape: tuple[int | None, ...], hint: int) -> None:
    """Whatever sizes a schedule chooses for it; ``lowered_once`` looks at what stands in the sources."""
    lengths, program = lowered_once(function, hint, shape)
    assert lengths.holds()(s0=hint)
    assert [*program.kernels()]


class _Block(tb.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, tb.nn.LayerNorm(width)
        self.qkv, self.out = tb.nn.Linear(width, 3 * width), tb.nn.Linear(width, width)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).reshape((batch, length, 3, self.heads, width // self.heads))
        q, k, v = (parts[:, :, j].permute((0, 2, 1, 3)) for j in range(3))
        y = tb.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.permute((0, 2, 1, 3)).reshape((batch, length, width)))


def _trained(x: tb.Tensor) -> Any:
    w = tb.ones((x.shape[1], 8), device="cuda").requires_grad_()
    loss = tb.log(tb.softmax(x @ w, axis=-1)[:, 0]).mean()
    loss.backward()
    return loss.detach(), w.grad


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: tb.softmax(x @ x.permute((1, 0)) / 8, axis=-1),
    "normalized": lambda x: tb.nn.functional.layer_norm(x, (x.shape[1],)).sum(axis=0),
    "gradient": _trained,
    "sorted": lambda x: (tb.sort(x, axis=0), tb.cumulative_sum(x, axis=0), tb.max(x)),
    "convolved": lambda x: tb.nn.functional.conv2d(
        x.reshape((1, 1, *x.shape)), tb.ones((4, 1, 3, 3), device="cuda") / 9, padding=1
    ),
    "gathered": lambda x: (tb.take(x, tb.arange(x.shape[0] - 1, -1, -1, device="cuda"), axis=0), x[::2]),
    "joined": lambda x: tb.concat([x, tb.zeros((3, x.shape[1]), device="cuda"), x[1:]], axis=0)[1:-1],
}


def _launches_of(program: Any) -> list[tuple[Any, ...]]:
    launches = [step.launch for item in program.steps for step in steps_of(item)]
    return [(launch.values, launch.grid) for launch in launches]


class _Recorder:
    """A compiler that builds nothing, and keeps what it was asked to launch."""

    def __init__(self) -> None:
        self.launches: list[Any] = []

    def dialect(self, index: int) -> Any:
        return LANGUAGE

    def allocate(self, nbytes: int, index: int) -> Any:
        return object()

    def prepare(self, source: str, launch: Any, index: int) -> Callable[..., None]:
        self.launches.append(launch)
        return lambda buffers, values=(): None


class _Templates(_Recorder):
    """A compiler that has the launches of all sizes in one, and keeps those that it was asked to fill."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: list[Any] = []

    def template(self, source: str, launch: Any, index: int) -> Any:
        def filled(values: Any, grid: Any) -> Any:
            came = iter(values)
            whole = tuple(next(came) if type(v) is SymInt else v for v in launch.values)
            assert next(came, None) is None
            self.launches.append(replace(launch, values=whole, grid=grid))
            return self.launches[-1]

        def queue(buffers: Any, values: Any, size: Any) -> None:
            assert len(buffers) == len(size.kernel.buffers)
            self.queued.append(size)

        return SimpleNamespace(at=filled, queue=queue)


@pytest.mark.parametrize("compiler", [_Recorder(), _Templates()], ids=["prepared", "templates"])
@pytest.mark.parametrize("fills", [True, False, None], ids=["fills", "refuses", "cannot"])
def test_a_new_size_prepares_only_what_fills_buffers(
    compiler: Any, fills: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that make their results are prepared where none fills the program's, or once that could not."""
    prepared: list[Any] = []

    def making(call: Any, device: Any) -> Callable[[Any], Any]:
        prepared.append(call)
        return lambda operands: [StridedArray(object(), s.shape, (1,), 0, s.dtype) for s in call.out_specs]

    def filling(call: Any, device: Any, way: int = 0) -> Any:
        return None if fills is None else lambda operands, buffers: fills

    for module in (source_program, call_template):
        monkeypatch.setattr(module, "library_call", making)
        monkeypatch.setattr(module, "into_kernel", filling)
        monkeypatch.setattr(module, "pack", lambda compiler, x, index: x)
    lengths = PlanEnv()
    symbol = lengths.symbol("s0", 100, least=2)
    x = Node(op="input", attrs={"index": 0}, spec=Spec((symbol, 64), dt.float32))
    w = Node(op="input", attrs={"index": 1}, spec=Spec((64, 48), dt.float32))
    out = PRIMS.wrap(x) @ PRIMS.wrap(w)
    out = tb.softmax(out, axis=-1)
    graph = Graph(inputs=(x, w), outputs=(out._value,))
    order = CompileRequest(graph=decompose(graph, lambda op: op == "matmul"), index=0)
    plan = DialectLowering(compiler, "cpu", library=("matmul",)).compile_symbolic(order, lengths)
    for n in (100, 101):
        compiler.launches.clear()
        prepared.clear()
        executable = plan.at({"s0": n})
        assert executable is not None, lengths.conditions
        whole, _ = plan._closed(substitute({"s0": n}))
        assert [(launch.values, launch.grid) for launch in compiler.launches] == _launches_of(whole)
        assert any(n in launch.grid for launch in compiler.launches)
        assert len(prepared) == (fills is None)
        values = [StridedArray(object(), spec, packed(0, spec).strides, 0, dt.float32)
                  for spec in ((n, 64), (64, 48))]  # fmt: skip
        for _ in range(2):
            (result,) = executable(values)
            assert result.shape == (n, 48)
        assert len(prepared) == (fills is not True)


class _Players(_Templates):
    """A compiler that plays the sizes of a plan that come again."""

    replays_sizes = True

    def __init__(self) -> None:
        super().__init__()
        self.played = self.recorded = 0

    def player(self, script: Any) -> Any:
        self.recorded += 1

        def play(values: Any, buffers: Any) -> bool:
            self.played += 1
            return True

        return SimpleNamespace(play=play)


def test_a_size_is_recorded_once_it_has_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording takes as long as many runs do: sizes that come a few times are run step by step."""
    monkeypatch.setattr(source_lowering, "RUNS_BEFORE_REPLAY", 3)
    compiler, lengths = _Players(), PlanEnv()
    symbol = lengths.symbol("s0", 100, least=2)
    x = Node(op="input", attrs={"index": 0}, spec=Spec((symbol, 64), dt.float32))
    out = tb.sum(tb.softmax(PRIMS.wrap(x), axis=-1), axis=0)
    graph = decompose(Graph(inputs=(x,), outputs=(out._value,)), lambda op: False)
    plan = DialectLowering(compiler, "cpu").compile_symbolic(CompileRequest(graph=graph, index=0), lengths)
    often, once = plan.at({"s0": 100}), plan.at({"s0": 101})
    for k in range(6):
        executables = [(often, 100)] + [(once, 101)] * (k < 3)
        for executable, n in executables:
            executable([StridedArray(object(), (n, 64), (64, 1), 0, dt.float32)])
    steps = len(compiler.queued) // 6
    assert (len(compiler.queued), compiler.recorded, compiler.played) == (6 * steps, 1, 3)


@pytest.mark.parametrize("hint", [5, 130])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        *[pytest.param(f, shape, id=name) for name, f, _, shape in EXACT],
        pytest.param(lambda x: tb.softmax(x / 8, axis=-1), (None, None), id="softmax of a square"),
        pytest.param(lambda x: (x * 2, x[1:]), (None, 8), id="a view of an input"),
    ],
)
def test_templates_are_filled_with_the_numbers_of_each_size(
    function: Callable[[Any], Any], shape: tuple[int | None, ...], hint: int
) -> None:
    """They are those of the program at that size: parameters, grids, bytes, and places of the results."""
    compiler, lengths = _Templates(), PlanEnv()
    symbol = lengths.symbol("s0", hint, least=0)
    whole = tuple(symbol if n is None else n for n in shape)
    x = Node(op="input", attrs={"index": 0}, spec=Spec(whole, dt.float32))
    results = function(PRIMS.wrap(x))
    outputs = results if isinstance(results, tuple) else (results,)
    graph = decompose(Graph(inputs=(x,), outputs=tuple(out._value for out in outputs)), lambda op: False)
    order = CompileRequest(graph=graph, index=0)
    plan = DialectLowering(compiler, "cpu").compile_symbolic(order, lengths)
    holds, served = lengths.holds(), 0
    for n in (*range(18), *range(hint - 2, hint + 3), 4097, 1 << 20, 1 << 62):
        executable = plan.at({"s0": n})
        assert executable is None or holds(s0=n)
        if executable is None:
            continue
        served += 1
        program, _ = plan._closed(substitute({"s0": n}))
        size = plan._template.at({"s0": n})
        assert [(launch.values, launch.grid) for launch in size.steps] == _launches_of(program)
        bytes_of = {slot: count * dtype.itemsize for slot, (count, dtype) in program.sizes.items()}
        assert {slot: size.nbytes[slot] for slot in bytes_of} == bytes_of
        assert [*size.outputs] == [(out.shape, out.strides, out.offset) for out in program.outputs]
        assert max((abs(v) for launch in size.steps for v in launch.values), default=0) < 1 << 63
    assert served > 2


@pytest.mark.usefixtures("cupy_or_names")
@pytest.mark.parametrize("group", [0, 32, 256], ids=["any", "warp", "block"])
def test_one_launcher_has_the_arguments_and_blocks_of_each_size(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver is handed is that of a launcher made for the size alone; buffers and late ones too."""
    module = importlib.import_module("tensorbus_cuda.kernel_launch")
    stream = SimpleNamespace(ptr=7)
    unit: Any = SimpleNamespace(
        alone=True, bare=None, stream=lambda: stream, failures=SimpleNamespace(note=lambda name: None)
    )
    handed: list[Any] = []

    def launch_kernel(function: int, *numbers: int) -> None:
        *shape, _, _, arguments, _ = numbers
        pointers = (ctypes.c_void_p * 6).from_address(arguments)
        widths = (8, 8, 8, 4, 16, 4)
        handed.append((shape, [ctypes.string_at(p, w) for p, w in zip(pointers, widths, strict=True)]))

    names = SimpleNamespace(launchKernel=launch_kernel, CUDADriverError=RuntimeError)
    monkeypatch.setattr(module, "driver", names)
    dtypes = (INDEX, dt.float32, dt.complex128, dt.int32)
    kernel = LoopKernel(
        name="k", buffers=tuple(Buffer(f"x{k}", dt.float32) for k in range(2)), body=(), group=group,
        params=tuple(Var(f"p{k}", dtype) for k, dtype in enumerate(dtypes)),
    )  # fmt: skip
    n, late, blocks = PlanEnv().symbol("s0", 5), RuntimeArg("scalar", 0), [_block(64), _block(128)]
    function = SimpleNamespace(ptr=1)
    many = module.Launcher(unit, function, Launch(kernel=kernel, values=(n, 1e39, n, late), grid=(n, 3)))
    for size in (1, 5, 33, 100, 33, 1 << 33, 100):
        one = module.Launcher(
            unit, function, Launch(kernel=kernel, values=(size, 1e39, size, late), grid=(size, 3))
        )
        one.queue(blocks, [size % 7])
        many.queue(blocks, [size % 7], many.at((size, size), (size, 3)))
        assert handed[-1] == handed[-2]
        assert handed[-1][1][2:] == [
            size.to_bytes(8, "little"), np.float32(np.inf).tobytes(), np.complex128(size).tobytes(),
            (size % 7).to_bytes(4, "little"),
        ]  # fmt: skip


def _block(address: int) -> Any:
    return SimpleNamespace(ptr=address, stream=None, used_by=lambda stream: None)


@on_gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_change_at_each_call_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New sizes, and sizes that come again, whose programs are graphs by then."""
    monkeypatch.setattr(source_lowering, "RUNS_BEFORE_REPLAY", 1)
    plans: list[Any] = []
    plan = program_cache.symbolic_plan
    monkeypatch.setattr(program_cache, "symbolic_plan", lambda *a: plans.append(plan(*a)) or plans[-1])
    function = PROGRAMS[name]
    compiled = tb.compile(function, dynamic=True, compare_eager=False)
    for n in (5, 9, 2, 33, 64, 65, 130, 1, 17, *(33,) * 4, *(700, 701, 702, 4097), *(65,) * 4):
        x = np.random.default_rng(n).integers(-8, 8, (n, 64)).astype("f4") / 8
        operand = tb.asarray(x, device="cuda")
        assert_alike(compiled(operand), function(operand), n + 64 * 8)
    assert plans
    assert None not in plans
    assert len(compiled.replays) <= 2


@on_gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_text_that_grows_on_a_gpu(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformer without a cache: two captures, and plans for a few ranges of lengths."""
    plans: list[Any] = []
    plan = program_cache.symbolic_plan
    monkeypatch.setattr(program_cache, "symbolic_plan", lambda *a: plans.append(plan(*a)) or plans[-1])
    with tb.device("cuda"):
        tb.manual_seed(0)
        model = tb.nn.Sequential(_Block(128, 2), _Block(128, 2)).to(getattr(tb, dtype)).eval()
        compiled = tb.compile(model, compare_eager=False)
        text = tb.randn(1, 160, 128).to(getattr(tb, dtype))
        with tb.no_grad():
            for n in range(2, 160):
                now = compiled(text[:, :n]).to(tb.float32)
                if n % 13 == 0:
                    # products of 128 terms, a softmax, a mean and a variance of 128, twice
                    eager = model(text[:, :n]).to(tb.float32)
                    assert_alike(now, eager, 2 * (3 * 128 + n), getattr(tb, dtype))
    assert 1 <= len(plans) <= 12


@on_gpu
def test_sums_of_any_length_on_a_gpu() -> None:
    compiled = tb.compile(lambda x: (x.sum(), x.mean(axis=0), (x * x).sum(axis=1)), dynamic=True)
    for n in (3, 300, 30_000, 30_001, 200_000):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype("f4")
        total, mean, squares = compiled(tb.asarray(x, device="cuda"))
        assert_within(total.numpy(), x.sum(dtype="f8"), of_sum(x, None, "float32"))
        whole = x.astype("f8")
        room = of_sum(x, 0, "float32") / n + gamma(2, "float32") * abs(whole.mean(0))
        assert_within(mean.numpy(), whole.mean(0), room)
        assert_within(squares.numpy(), (whole * whole).sum(1), gamma(12, "float32") * (whole * whole).sum(1))
