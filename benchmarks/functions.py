"""Transforms of functions and custom ops, beside torch.func and JAX: ``python -m benchmarks.functions``.

It prints the rows of cpu in medians of turns; ``benchmarks.card`` has those of a card among its own. Peers
that are not installed are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import tensorbus as tb

from benchmarks.measure import microseconds

Call = Callable[[], object]
Case = tuple[str, dict[str, Call]]


def cases(device: str) -> Iterator[Case]:
    """Yield each row's name, and what calls each library."""
    yield from _per_sample_gradients(device)
    yield from _hessian(device)
    yield from _jacobian(device)
    yield from _custom_op(device)


def _peers(device: str) -> tuple[Any, Any]:
    """Return torch and jax, None where one is not installed."""
    torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    jax: Any = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
    if jax is not None and not any(d.platform == {"cuda": "gpu"}.get(device, device) for d in jax.devices()):
        jax = None
    return torch, jax


def _calls(
    device: str, ours: Callable[..., Any], theirs: Callable[[Any], Any] | None,
    jaxs: Callable[[Any], Any] | None, arguments: list[Any],
) -> dict[str, Call]:  # fmt: skip
    """Return the calls with equal arguments: each function compiled, torch.func's eager too."""
    torch, jax = _peers(device)
    own = [tb.asarray(x, device=device) for x in arguments]
    compiled = tb.compile(ours)
    calls: dict[str, Call] = {"tensorbus": lambda: compiled(*own)}
    if torch is not None and theirs is not None:
        values = [torch.asarray(x.tolist(), dtype=torch.float32, device=device) for x in arguments]
        if arguments[-1].dtype is tb.int64:
            values[-1] = values[-1].to(torch.int64)
        eager = theirs(torch)
        fast = torch.compile(eager)
        calls |= {"PyTorch": lambda: eager(*values), "torch.compile": lambda: fast(*values)}
    if jax is not None and jaxs is not None:
        arrays = [jax.numpy.asarray(x.tolist()) for x in arguments]
        jitted = jax.jit(jaxs(jax))
        calls["JAX"] = lambda: jax.block_until_ready(jitted(*arrays))
    return calls


def _per_sample_gradients(device: str) -> Iterator[Case]:
    tb.manual_seed(0)
    shapes = [(64, 256), (256,), (256, 10), (10,)]
    weights = [tb.randn(*shape, device="cpu") * 0.1 for shape in shapes]
    x = tb.randn(512, 64, device="cpu")
    target = tb.arange(512, device="cpu") % 10

    def loss_in(relu: Any, cross_entropy: Any) -> Callable[..., Any]:
        def loss(a: Any, b: Any, c: Any, d: Any, x: Any, target: Any) -> Any:
            return cross_entropy(relu(x @ a + b) @ c + d, target)

        return loss

    def ours(*arguments: Any) -> Any:
        loss = loss_in(tb.nn.functional.relu, tb.nn.functional.cross_entropy)
        return tb.func.vmap(tb.func.grad(loss, argnums=(0, 1, 2, 3)), in_dims=_IN_DIMS)(*arguments)

    def theirs(torch: Any) -> Any:
        loss = loss_in(torch.relu, torch.nn.functional.cross_entropy)
        return torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2, 3)), in_dims=_IN_DIMS)

    def jaxs(jax: Any) -> Any:
        loss = loss_in(jax.nn.relu, lambda logits, target: -jax.nn.log_softmax(logits)[target])
        return jax.vmap(jax.grad(loss, argnums=(0, 1, 2, 3)), in_axes=_IN_DIMS)

    calls = _calls(device, ours, theirs, jaxs, [*weights, x, target])
    yield "per-sample gradients, MLP 64-256-10, 512 samples", calls


_IN_DIMS = (None, None, None, None, 0, 0)


def _hessian(device: str) -> Iterator[Case]:
    tb.manual_seed(0)
    m, x = tb.randn(64, 64, device="cpu") * 0.1, tb.randn(64, device="cpu")

    def function_in(tanh: Any) -> Callable[..., Any]:
        return lambda x, m: (tanh(m @ x) ** 2).sum() + (x * x * x).sum()

    yield (
        "Hessian of a function of 64",
        _calls(
            device,
            lambda x, m: tb.func.hessian(function_in(tb.tanh))(x, m),
            lambda torch: torch.func.hessian(function_in(torch.tanh)),
            lambda jax: jax.hessian(function_in(jax.numpy.tanh)),
            [x, m],
        ),
    )


def _jacobian(device: str) -> Iterator[Case]:
    tb.manual_seed(0)
    a, b = (tb.randn(256, 256, device="cpu") * 0.06 for _ in range(2))
    x = tb.randn(256, device="cpu")

    def function_in(tanh: Any) -> Callable[..., Any]:
        return lambda x, a, b: tanh(tanh(x @ a) @ b)

    yield (
        "Jacobian of an MLP 256-256-256",
        _calls(
            device,
            lambda x, a, b: tb.func.jacrev(function_in(tb.tanh))(x, a, b),
            lambda torch: torch.func.jacrev(function_in(torch.tanh)),
            lambda jax: jax.jacrev(function_in(jax.numpy.tanh)),
            [x, a, b],
        ),
    )


def _custom_op(device: str) -> Iterator[Case]:
    torch, _ = _peers(device)

    @tb.library.custom_op("benchmarks::doubled")
    def doubled(x: tb.Tensor) -> tb.Tensor:
        return x + x

    x = tb.ones(8, device=device)
    calls: dict[str, Call] = {"tensorbus": lambda: doubled(x), "the kernel alone": lambda: x + x}
    if torch is not None:
        namespace: dict[str, Any] = {"torch": torch}
        exec("def doubled(x: torch.Tensor) -> torch.Tensor:\n    return x + x", namespace)
        theirs = torch.library.custom_op("benchmarks::doubled", namespace["doubled"], mutates_args=())
        p = torch.ones(8, device=device)
        calls |= {"PyTorch": lambda: theirs(p), "its kernel alone": lambda: p + p}
    yield "a custom op that doubles 8 numbers, queued", calls
    tb.library.unregister("benchmarks::doubled")


def main() -> None:
    """Print the rows of cpu."""
    print("| | microseconds | ours / best peer |\n|---|---|---|")
    for name, calls in cases("cpu"):
        times = microseconds(calls, repeats=9)
        others = [t for who, t in times.items() if who != "tensorbus" and "alone" not in who]
        ratio = f"{times['tensorbus'] / min(others):.2f}" if others else ""
        print(f"| {name} | {', '.join(f'{who} {t:.1f}' for who, t in times.items())} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
