"""``flex_attention`` beside PyTorch's, compiled, and its scaled_dot_product_attention, on any device.

``python -m benchmarks.attention`` prints those of cpu, float32, in medians of turns; ``benchmarks.card`` has
those of a card among its own.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorbus as tb
import torch
from torch.nn.attention import flex_attention as peer

Call = Callable[[], object]
Mod = Callable[..., Any]
REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row: ``mods(arrays, documents, slopes)`` returns the score_mod and the mask_mod of either library."""

    name: str
    mods: Callable[[Any, Any], tuple[Mod | None, Mod | None]]
    causal: bool = False


def _causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def _rows(window: int) -> tuple[Row, ...]:
    def near(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return (q >= kv) & (q - kv < window)

    def prefix(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return (q >= kv) | (kv < window)

    def documents(numbers: Any, slopes: Any) -> tuple[Mod | None, Mod | None]:
        return None, lambda b, h, q, kv: (q >= kv) & (numbers[q] == numbers[kv])

    def alibi(numbers: Any, slopes: Any) -> tuple[Mod | None, Mod | None]:
        return lambda s, b, h, q, kv: s + slopes[h] * (kv - q), None

    return (
        Row(name="causal", mods=lambda n, s: (None, _causal), causal=True),
        Row(name=f"sliding window {window}", mods=lambda n, s: (None, near)),
        Row(name=f"prefix {window}", mods=lambda n, s: (None, prefix)),
        Row(name="eight documents", mods=documents),
        Row(name="alibi", mods=alibi),
    )


def cases(
    device: str,
    shape: tuple[int, int, int, int],
    dtype: str,
    window: int,
    backward: bool,
    names: str = "",
) -> Iterator[tuple[str, dict[str, Call]]]:
    """Yield the rows forward and, with ``backward``, forward and backward, and what calls each library.

    ``names``: only those whose names begin so, with commas between.
    """
    heads, length = shape[1:3]
    a = [torch.randn(shape, device=device, dtype=getattr(torch, dtype)) for _ in range(3)]
    b = [tb.randn(*shape, device=device).to(dtype) for _ in range(3)]
    flex = torch.compile(peer.flex_attention)
    dense = torch.nn.functional.scaled_dot_product_attention
    text = f"{'x'.join(map(str, shape))} {dtype}"
    for row in [row for row in _rows(window) if row.name.startswith(tuple(names.split(",")))]:
        step = -(-length // 8)
        theirs = row.mods(torch.arange(length, device=device) // step,
                          torch.exp2(-torch.arange(1.0, heads + 1, device=device)))  # fmt: skip
        ours = row.mods(tb.arange(length, device=device) // step,
                        tb.exp2(-tb.arange(1, heads + 1, dtype=tb.float32, device=device)))  # fmt: skip
        mask = block = None
        if theirs[1] is not None and ours[1] is not None:
            block = peer.create_block_mask(theirs[1], None, None, length, length, device=device)
            mask = tb.nn.attention.create_block_mask(ours[1], None, None, length, length, device=device)
        run, result = _ours(ours[0], mask)

        def other(q: Any, k: Any, v: Any, score: Any = theirs[0], block: Any = block) -> Any:
            return flex(q, k, v, score_mod=score, block_mask=block)

        def sdpa(q: Any, k: Any, v: Any) -> Any:
            return dense(q, k, v, is_causal=True)

        calls: dict[str, Call] = {"tensorbus": partial(run, *b), "flex": partial(other, *a)}
        calls |= {"sdpa": partial(sdpa, *a)} if row.causal else {}
        yield f"flex_attention, {row.name}, {text}", calls
        if backward:
            both: dict[str, Call] = {"tensorbus": partial(result, *b)}
            both |= {"flex": partial(_both, other, a)} if device != "cpu" else {}  # it has none there
            both |= {"sdpa": partial(_both, sdpa, a)} if row.causal else {}
            yield f"the same and back, {row.name}, {text}", both


def one_query(device: str, dtype: str) -> Iterator[tuple[str, dict[str, Call]]]:
    """Yield the row of decoding: one query of 32 heads over 8 heads of 8192 keys, a batch of 8."""
    a = [torch.randn(8, n, m, 128, device=device, dtype=getattr(torch, dtype)) for n, m in _DECODED]
    b = [tb.randn(8, n, m, 128, device=device).to(dtype) for n, m in _DECODED]
    flex, run = torch.compile(peer.flex_attention), _ours(None, None, enable_gqa=True)[0]
    dense = torch.nn.functional.scaled_dot_product_attention
    yield f"flex_attention, one query, 8x32x1x128 over 8 heads of 8192 keys {dtype}", {
        "tensorbus": lambda: run(*b), "flex": lambda: flex(*a, enable_gqa=True),
        "sdpa": lambda: dense(*a, enable_gqa=True),
    }  # fmt: skip


_DECODED = ((32, 1), (8, 8192), (8, 8192))


def _ours(score: Any, mask: Any, **named: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the compiled forward, and forward and backward."""

    def forward(q: Any, k: Any, v: Any) -> Any:
        return tb.nn.attention.flex_attention(q, k, v, score, mask, **named)

    def both(q: Any, k: Any, v: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return tb.grad(forward(*leaves).sum(), leaves)

    return tb.compile(forward), tb.compile(both)


def _both(function: Callable[..., Any], operands: list[Any]) -> Any:
    leaves = [x.detach().requires_grad_() for x in operands]
    return torch.autograd.grad(function(*leaves).sum(), leaves)


def milliseconds(calls: dict[str, Call]) -> dict[str, float]:
    """Return the median milliseconds of each call, in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(REPEATS + 2):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if number >= 2:
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def main() -> None:
    """Print the rows of cpu."""
    print("| | tensorbus | flex | sdpa | ours / best peer |\n|---|---|---|---|---|")
    rows = cases("cpu", (8, 16, 1024, 64), "float32", 256, True, "causal,sliding")
    for name, calls in itertools.chain(rows, one_query("cpu", "float32")):
        times = milliseconds(calls)
        best = min((t for who, t in times.items() if who != "tensorbus"), default=None)
        cells = [f"{times[who]:.0f} ms" if who in times else "" for who in ("tensorbus", "flex", "sdpa")]
        ratio = f"{times['tensorbus'] / best:.2f}" if best else ""
        print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
