"""Figures of an NVIDIA card with tensorbus, beside PyTorch, torch.compile, CuPy and JAX: medians of one run.

``python -m benchmarks.card [GROUP ...] [--output FILE]`` prints a table in Markdown. Every call is
warmed. "ms" are those of a call that is waited for, "ms each" those of fifty that are queued one behind the
other, which is what the card takes where a call is short, and "us" those of queueing alone.
"""
# ruff: noqa: B023 - each case is measured before the next one is made

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import platform
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import cupy
import tensorbus as tb
import torch

from benchmarks import functions
from benchmarks.attention import cases as flex_cases
from benchmarks.attention import one_query
from benchmarks.compiled.models import Library, gpt, mlp

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax: Any = importlib.import_module("jax") if importlib.util.find_spec("jax") is not None else None

Call = Callable[[], object]
DEVICE = "cuda"
ROWS, LENGTH = 8192, 4096
LONG = 64 << 20
REPEATS, LEAST_SECONDS, TOGETHER = 30, 0.2, 50
SHARE = 0.85
"""Of the bandwidth of a copy, for what memory bounds."""
OURS = Library(nn=tb.nn, functional=tb.nn.functional, arrays=tb, permute=tb.permute_dims, unbind=tb.unstack)
PEER = Library(
    nn=torch.nn, functional=torch.nn.functional, arrays=torch, permute=torch.permute, unbind=torch.unbind
)  # fmt: skip
Case = tuple[str, dict[str, Call], float, str]
"""A name, the calls by who makes them, the bytes moved at least (0: not bound by memory), and the unit."""


def finished(result: object) -> None:
    """Wait for what was queued, by JAX too, which queues in threads of its own."""
    if jax is not None and any(isinstance(x, jax.Array) for x in jax.tree_util.tree_leaves(result)):
        jax.block_until_ready(result)
    torch.cuda.synchronize()


def milliseconds(calls: dict[str, Call], together: int = 1) -> dict[str, float]:
    """Return the median milliseconds of each call, in turn; of ``together`` that are waited for once."""
    for call in calls.values():
        for _ in range(5):
            finished(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    while min(map(len, times.values())) < REPEATS or time.perf_counter() - start < LEAST_SECONDS:
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(together):
                result = call()
            finished(result)
            times[name].append(1e3 * (time.perf_counter() - begin) / together)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def microseconds(calls: dict[str, Call], count: int = 1000) -> dict[str, float]:
    """Return the median microseconds that queueing each call takes, in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(9):
        for name, call in calls.items():
            for _ in range(50):
                call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append(1e6 * (time.perf_counter() - begin) / count)
            torch.cuda.synchronize()
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def small() -> Iterator[Case]:
    """Yield the costs of launches."""
    x, y = tb.ones((8,), device=DEVICE), tb.ones((8,), device=DEVICE)
    p, q = torch.ones(8, device=DEVICE), torch.ones(8, device=DEVICE)
    c, d = cupy.ones(8, "f"), cupy.ones(8, "f")
    add = tb.compile(lambda x, y: x + y)
    yield "add of 8 elements, eager", {
        "tensorbus": lambda: x + y, "PyTorch": lambda: p + q, "CuPy": lambda: c + d,
    }, 0, "us"  # fmt: skip
    yield "add of 8 elements, compiled", {"tensorbus": lambda: add(x, y), "PyTorch": lambda: p + q}, 0, "us"


def of_jax(function: Callable[..., Any], *args: Any) -> dict[str, Call]:
    """Return the call of a function that JAX compiles, of the same numbers; none where there is no JAX."""
    if jax is None:
        return {}
    jitted, values = jax.jit(function), [jax.dlpack.from_dlpack(x) for x in args]
    return {"JAX": lambda: jitted(*values)}


def _normed(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def _jax_chain(x: Any, a: Any, b: Any, c: Any) -> Any:
    return jax.nn.gelu(x * a + b, approximate=False) * jax.numpy.tanh(c) - x


def chain_of(of: Library, x: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the elementwise chain of the figures."""
    arrays = of.arrays
    return of.functional.gelu(x * a + b) * arrays.tanh(c) - x


def bound_by_memory() -> Iterator[Case]:
    """Yield what one pass, or two, over memory would do."""
    operands = [torch.randn(LONG, device=DEVICE) for _ in range(4)]
    ours = [tb.from_dlpack(x) for x in operands]
    out = torch.empty_like(operands[0])
    yield "copy of 64 M float32", {"PyTorch": lambda: out.copy_(operands[0])}, 8 * LONG, "ms each"
    chain, peer = tb.compile(lambda *v: chain_of(OURS, *v)), torch.compile(lambda *v: chain_of(PEER, *v))
    yield "gelu(x*a+b)*tanh(c)-x, 64 M float32", {
        "tensorbus": lambda: chain(*ours), "torch.compile": lambda: peer(*operands),
        **of_jax(_jax_chain, *operands),
    }, 20 * LONG, "ms each"  # fmt: skip
    add = tb.compile(lambda x, y: x + y)
    yield "add, 64 M float32", {
        "tensorbus": lambda: add(ours[0], ours[1]), "PyTorch": lambda: operands[0] + operands[1],
    }, 12 * LONG, "ms each"  # fmt: skip


def rows() -> Iterator[Case]:
    """Yield what goes along rows, and down columns."""
    for name in ("float32", "bfloat16"):
        yield from _rows(name)


def _rows(dtype: str) -> Iterator[Case]:
    p = torch.randn(ROWS, LENGTH, device=DEVICE).to(getattr(torch, dtype))
    x = tb.randn(ROWS, LENGTH, device=DEVICE).to(getattr(tb, dtype))
    size, j = p.element_size() * ROWS * LENGTH, jax
    pairs: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any], int], ...] = (
        ("gelu", lambda x: OURS.functional.gelu(x), lambda p: PEER.functional.gelu(p),
         lambda a: j.nn.gelu(a, approximate=False), 2),
        ("softmax", lambda x: tb.softmax(x, axis=1), lambda p: torch.softmax(p, 1),
         lambda a: j.nn.softmax(a, 1), 2),
        ("layer norm", lambda x: OURS.functional.layer_norm(x, (LENGTH,)),
         lambda p: PEER.functional.layer_norm(p, (LENGTH,)), _normed, 2),
        ("sum along rows", lambda x: tb.sum(x, axis=1), lambda p: torch.sum(p, 1), lambda a: a.sum(1), 1),
        ("sum down columns", lambda x: tb.sum(x, axis=0), lambda p: torch.sum(p, 0), lambda a: a.sum(0), 1),
        ("largest of rows", lambda x: tb.max(x, axis=1), lambda p: torch.amax(p, 1), lambda a: a.max(1), 1),
        ("cumulative sum along rows", lambda x: tb.cumulative_sum(x, axis=1),
         lambda p: torch.cumsum(p, 1), lambda a: a.cumsum(1), 2),
        ("sort along rows", lambda x: tb.sort(x, axis=1), lambda p: torch.sort(p, dim=1)[0],
         lambda a: j.numpy.sort(a, 1), 0),
        ("argsort along rows", lambda x: tb.argsort(x, axis=1), lambda p: torch.argsort(p, dim=1),
         lambda a: j.numpy.argsort(a, 1), 0),
    )  # fmt: skip
    for name, one, other, third, passes in pairs:
        compiled, theirs = tb.compile(one), torch.compile(other)
        calls: dict[str, Call] = {
            "tensorbus": partial(compiled, x), "PyTorch": partial(other, p),
            "torch.compile": partial(theirs, p), **of_jax(third, p),
        }  # fmt: skip
        if dtype != "float32" and not passes:
            continue
        if name.startswith("sort"):
            array = cupy.from_dlpack(p)
            calls["CuPy"] = lambda: cupy.sort(array, axis=1)
        yield f"{name}, {ROWS}x{LENGTH} {dtype}", calls, passes * size, "ms each"
        if passes:
            eager: dict[str, Call] = {"tensorbus": partial(one, x), "PyTorch": partial(other, p)}
            yield f"{name}, eager, {ROWS}x{LENGTH} {dtype}", eager, passes * size, "ms each"


def other_shapes() -> Iterator[Case]:
    """Yield what has few long rows, or one, and what elements are chosen or moved by."""
    for shape in ((64, 50257), (512, 50257), (4, 128256)):
        p = torch.randn(*shape, device=DEVICE)
        x, size = tb.from_dlpack(p), 4 * p.numel()
        compiled = tb.compile(lambda x: tb.softmax(x, axis=1))
        for name, ours, peer, passes in (
            ("softmax", partial(compiled, x), partial(torch.softmax, p, 1), 2),
            ("argmax", partial(tb.argmax, x, axis=1), partial(torch.argmax, p, 1), 1),
            ("sum of all", partial(tb.sum, x), partial(torch.sum, p), 1),
        ):
            rows = f"{name}, {'x'.join(map(str, shape))} float32"
            yield rows, {"tensorbus": ours, "PyTorch": peer}, passes * size, "ms each"
    p = torch.randn(LONG, device=DEVICE)
    x = tb.from_dlpack(p)
    sums: dict[str, Call] = {"tensorbus": lambda: tb.cumsum(x, 0), "PyTorch": lambda: torch.cumsum(p, 0)}
    yield "cumulative sum of one row, 64 M float32", sums, 8 * LONG, "ms each"
    for n in (256, ROWS):
        p = torch.randn(n, LENGTH, device=DEVICE)
        i = torch.randint(0, LENGTH, p.shape, device=DEVICE)
        x, j = tb.from_dlpack(p), tb.from_dlpack(i)
        pairs: tuple[tuple[str, Call, Call], ...] = (
            ("nonzero", partial(tb.nonzero, x > 0), partial(torch.nonzero, p > 0)),
            ("elements of a mask", lambda x=x: x[x > 0], lambda p=p: p[p > 0]),  # type: ignore[misc]
            ("scatter", partial(tb.scatter, x, 1, j, x), partial(torch.scatter, p, 1, i, p)),
            ("scatter_add", partial(tb.scatter_add, x, 1, j, x), partial(torch.scatter_add, p, 1, i, p)),
        )
        for name, own, other in pairs:
            yield f"{name}, {n}x{LENGTH} float32", {"tensorbus": own, "PyTorch": other}, 0, "ms"


def products() -> Iterator[Case]:
    """Yield products, alone and in what models make of them, and scaled ones of floats of 8 bits."""
    for n, name in ((4096, "float32"), (8192, "bfloat16"), (8192, "float16")):
        p = torch.randn(n, n, device=DEVICE, dtype=getattr(torch, name))
        x = tb.from_dlpack(p) if name != "bfloat16" else tb.randn(n, n, device=DEVICE).to(tb.bfloat16)
        yield f"matmul {n}, {name}", {"tensorbus": lambda: x @ x, "PyTorch": lambda: p @ p}, 0, "ms"
    p, w = (torch.randn(*s, device=DEVICE, dtype=torch.bfloat16) for s in ((8192, 4096), (4096, 4096)))
    x, v = (tb.randn(*s, device=DEVICE).to(tb.bfloat16) for s in ((8192, 4096), (4096, 4096)))
    for name, call in _ENDS.items():
        ours, theirs = tb.compile(_ended(call, OURS.functional)), torch.compile(_ended(call, PEER.functional))
        yield f"linear and {name}, 8192x4096x4096 bfloat16", {
            "tensorbus": partial(ours, x, v), "torch.compile": partial(theirs, p, w),
        }, 0, "ms"  # fmt: skip
    n = 8192
    p, q = (torch.randn(n, n, device=DEVICE).to(torch.float8_e4m3fn) for _ in range(2))
    x, y = (tb.randn(n, n, device=DEVICE).to(tb.float8_e4m3fn) for _ in range(2))
    own, one = tb.asarray(1.0, device=DEVICE), torch.ones((), device=DEVICE)
    yield f"scaled_matmul {n}, float8_e4m3fn to bfloat16", {
        "tensorbus": lambda: tb.scaled_matmul(x, y.mT, own, own, dtype="bfloat16"),
        "PyTorch": lambda: torch._scaled_mm(p, q.t(), one, one, out_dtype=torch.bfloat16),
    }, 0, "ms"  # fmt: skip


def attention() -> Iterator[Case]:
    """Yield attention, and flex_attention beside PyTorch's, which torch.compile makes, and its dense one."""
    shape = (8, 16, 4096, 128)
    a = [torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]
    b = [tb.randn(*shape, device=DEVICE).to(tb.bfloat16) for _ in range(3)]
    attend, peer = OURS.functional.scaled_dot_product_attention, PEER.functional.scaled_dot_product_attention
    compiled = tb.compile(lambda q, k, v: attend(q, k, v, is_causal=True))
    yield "attention, causal, 8x16x4096x128 bfloat16", {
        "tensorbus": lambda: compiled(*b), "PyTorch": lambda: peer(*a, is_causal=True),
    }, 0, "ms"  # fmt: skip
    columns = {"tensorbus": "tensorbus", "flex": "torch.compile", "sdpa": "PyTorch"}
    decoding = one_query(DEVICE, "bfloat16")
    for name, calls in itertools.chain(flex_cases(DEVICE, shape, "bfloat16", 512, backward=True), decoding):
        yield name, {columns[who]: call for who, call in calls.items()}, 0, "ms"


_ENDS: Final[dict[str, Callable[..., Any]]] = {
    "gelu": lambda f, x: f.gelu(x), "tanh gelu": lambda f, x: f.gelu(x, approximate="tanh"),
    "relu": lambda f, x: f.relu(x),
}  # fmt: skip


def _ended(call: Callable[..., Any], functional: Any) -> Callable[..., Any]:
    return lambda x, w: call(functional, functional.linear(x, w))


def training() -> Iterator[Case]:
    """Yield train steps and models."""
    for precision, name in (("highest", "float32"), ("high", "TF32")):
        tb.set_matmul_precision(precision)
        torch.set_float32_matmul_precision(precision)
        if jax is not None:  # its own default is TF32
            jax.config.update("jax_default_matmul_precision", name.replace("TF32", "tensorfloat32"))
        yield from _perceptron(name)
    tb.set_matmul_precision("highest")
    torch.set_float32_matmul_precision("highest")
    yield from _language()
    yield from _one_token()


def _perceptron(name: str) -> Iterator[Case]:
    torch.manual_seed(0)
    net = mlp(PEER, 784, 1024, 1024, 10).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    p, target = torch.randn(256, 784, device=DEVICE), torch.arange(256, device=DEVICE) % 10
    with tb.device(DEVICE):
        ours = mlp(OURS, 784, 1024, 1024, 10)
        own = tb.optim.Adam(ours.parameters(), lr=1e-3)
    x, y = tb.from_dlpack(p), tb.from_dlpack(target)

    def step(x: Any, y: Any) -> Any:
        own.zero_grad()
        loss = tb.nn.functional.cross_entropy(ours(x), y)
        loss.backward()
        own.step()
        return loss

    def peer() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(p), target)
        loss.backward()
        optimizer.step()
        return loss

    compiled = tb.compile(step)
    calls: dict[str, Call] = {
        "tensorbus": lambda: compiled(x, y), "PyTorch": peer, "torch.compile": torch.compile(peer),
        **_jax_step(net, p, target),
    }  # fmt: skip
    for unit in ("ms", "ms each"):
        yield f"MLP 784-1024-1024-10, batch 256, train step, Adam, {name}", calls, 0, unit


def _jax_step(net: Any, p: Any, target: Any) -> dict[str, Call]:
    """Return the train step in JAX, from the same weights."""
    if jax is None:
        return {}
    jnp = jax.numpy
    weights = [jax.dlpack.from_dlpack(w.detach().clone()) for w in net.parameters()]
    x, y = (jax.dlpack.from_dlpack(v) for v in (p, target))

    def loss_of(ws: Any, x: Any, y: Any) -> Any:
        for k in range(0, len(ws) - 2, 2):
            x = jnp.maximum(x @ ws[k].T + ws[k + 1], 0)
        logits = x @ ws[-2].T + ws[-1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(ws: Any, first: Any, second: Any, count: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(ws, x, y)
        count = count + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
        rate, root = 1e-3 / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        ws = [w - rate * m / (jnp.sqrt(v) / root + 1e-8) for w, m, v in zip(ws, first, second, strict=True)]
        return ws, first, second, count, loss

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    state: list[Any] = [weights, [0 * w for w in weights], [0 * w for w in weights], jnp.float32(0)]

    def run() -> Any:
        *state[:], loss = jitted(*state, x, y)
        return loss

    return {"JAX": run}


def _language() -> Iterator[Case]:
    shape, words, layers, width, heads = (8, 1024), 50257, 12, 768, 12
    net = gpt(PEER, layers, width, heads, shape[1], words).to(DEVICE).to(torch.bfloat16)
    with tb.device(DEVICE):
        ours = gpt(OURS, layers, width, heads, shape[1], words).to(tb.bfloat16)
    q = torch.randint(0, words, shape, device=DEVICE)
    t = tb.from_dlpack(q)
    for what, own, peer in (("12 layers", ours.hidden, net.hidden), ("12 layers to logits", ours, net)):
        yield from _trained(f"GPT-2-small, {what}, 8x1024, bfloat16", ours, own, t, net, peer, q)


def _trained(
    name: str, ours: Any, own: Callable[[Any], Any], t: Any, net: Any, peer: Callable[[Any], Any], q: Any
) -> Iterator[Case]:
    """Yield a model's forward pass, and both passes; ``own`` and ``peer`` are what is computed of it."""
    faster: Any = torch.compile(peer)

    def forward(call: Any) -> Call:
        def run() -> Any:
            with torch.no_grad():
                return call(q)

        return run

    def own_forward(t: Any) -> Any:
        with tb.no_grad():
            return own(t)

    def both(t: Any) -> Any:
        for p in ours.parameters():
            p.grad = None
        loss = own(t).to(tb.float32).mean()
        loss.backward()
        return loss

    def peer_both(call: Any) -> Call:
        def run() -> Any:
            net.zero_grad()
            call(q).float().mean().backward()

        return run

    for unit in ("ms", "ms each"):
        compiled = tb.compile(own_forward)
        yield f"{name}, forward", {
            "tensorbus": lambda: compiled(t), "PyTorch": forward(peer), "torch.compile": forward(faster),
        }, 0, unit  # fmt: skip
    trained = tb.compile(both)
    trains: Any = torch.compile(peer)
    for unit in ("ms", "ms each"):
        yield f"{name}, forward and backward", {
            "tensorbus": lambda: trained(t), "PyTorch": peer_both(peer), "torch.compile": peer_both(trains),
        }, 0, unit  # fmt: skip


def _one_token() -> Iterator[Case]:
    layers, width, heads, words = 12, 768, 12, 50257
    net = gpt(PEER, layers, width, heads, 1, words).to(DEVICE).to(torch.bfloat16)
    with tb.device(DEVICE):
        ours = gpt(OURS, layers, width, heads, 1, words).to(tb.bfloat16)
    q = torch.zeros((1, 1), dtype=torch.int64, device=DEVICE)
    t = tb.from_dlpack(q)

    def own(t: Any) -> Any:
        with tb.no_grad():
            return ours(t)

    def eager() -> Any:
        with torch.no_grad():
            return net(q)

    for _ in range(3):
        eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        net(q)
    compiled = tb.compile(own)
    yield "one token through 12 layers and to logits, bfloat16", {
        "tensorbus": lambda: compiled(t), "PyTorch": eager, "CUDA graph": graph.replay,
    }, 0, "ms"  # fmt: skip


def run(suites: list[Callable[[], Iterator[Case]]]) -> Iterator[str]:
    """Measure; yield the lines of the table in Markdown, each when it is known."""
    names = ("tensorbus", "PyTorch", "torch.compile", "CUDA graph", "CuPy", "JAX")
    yield f"| what | {' | '.join(names)} | unit | copy | best peer |"
    yield "|---" * (len(names) + 4) + "|"
    copy = 0.0
    for suite in suites:
        try:
            for name, calls, size, unit in suite():
                together = TOGETHER if unit == "ms each" else 1
                result = microseconds(calls) if unit == "us" else milliseconds(calls, together)
                if name.startswith("copy"):
                    copy = size / result["PyTorch"]
                yield _line(name, result, names, size, unit, copy)
        except Exception:
            yield f"| {suite.__name__}: stopped, see the log | | | | | | | | | |"
            traceback.print_exc()
        torch.cuda.empty_cache()
        tb.empty_cache(DEVICE)


def _line(
    name: str, actual: dict[str, float], names: tuple[str, ...], size: float, unit: str, copy: float
) -> str:
    own = actual.get("tensorbus")
    share = f"{size / own / copy:.0%}" if own and size and copy else ""
    peers = [v for k, v in actual.items() if k in names and k != "tensorbus"]
    without_column = ", ".join(f"{k} {v:.3f}" for k, v in actual.items() if k not in names)
    beside = ("met" if own <= min(peers) else f"{own / min(peers):.2f} times") if own and peers else ""
    cells = [f"{actual[k]:.3f}" if k in actual else "" for k in names]
    name += without_column and f" ({without_column})"
    return f"| {name} | {' | '.join(cells)} | {unit} | {share} | {beside} |"


def versions() -> str:
    """Return the card, the driver and the libraries."""
    about = cupy.cuda.runtime.getDeviceProperties(0)
    return (
        f"{about['name'].decode()}, driver CUDA {cupy.cuda.runtime.driverGetVersion()}, PyTorch"
        f" {torch.__version__}, CuPy {cupy.__version__}, Python {platform.python_version()}"
    )


def transforms() -> Iterator[Case]:
    """Yield transforms of functions, and custom ops."""
    for name, calls in functions.cases(DEVICE):
        yield name, calls, 0, "us" if name.startswith("a custom op") else "ms"


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card", description=__doc__)
    parser.add_argument("--output", type=Path, help="a file for the table")
    suites = (small, bound_by_memory, rows, other_shapes, products, attention, training, transforms)
    groups = {suite.__name__: suite for suite in suites}
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(groups)}; none: all")
    options = parser.parse_args()
    unknown = set(options.groups) - set(groups)
    if unknown:
        parser.error(f"no group is called {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
    print(versions(), flush=True)
    text = f"{time.strftime('%Y-%m-%d')}, {versions()}\n\n"
    for line in run([groups[name] for name in options.groups or groups]):
        print(line, flush=True)
        text += f"{line}\n"
        if options.output is not None:  # row by row: a run that is stopped leaves what it measured
            options.output.write_text(text)


if __name__ == "__main__":
    main()
