"""Attention by functions of scores: held to the dense formula, and to PyTorch, on every device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.nn.attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

from error_bounds import assert_within, gamma, stored
from peak_memory import peak_bytes


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx - kv_idx < 7


def sparse(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx + 4 >= kv_idx) & ((q_idx + kv_idx) % 5 != b) & (q_idx != 3)


def until(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return kv_idx < 250 + b


@dataclass(frozen=True)
class Case:
    """Shapes of query, key and value, what the functions are made of, and how wide the blocks are.

    ``mods`` takes what is captured, tensors of the shapes in ``captured``, and returns both functions.
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    width: int
    mods: Callable[..., tuple[Any, Any]] = lambda: (None, None)
    captured: tuple[tuple[int, ...], ...] = ()
    block: int | tuple[int, int] = 16
    dtype: str = "float32"


def _bias(bias: Any, slopes: Any, sink: Any) -> tuple[Any, Any]:
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + bias[h, i, j] * tb.exp(slopes)[h] + sink * (j == 0)

    return score, None


def _softcap(slopes: Any) -> tuple[Any, Any]:
    return lambda s, b, h, i, j: 2 * tb.tanh(s / 2) + slopes[h] * (j - i), causal


def _capped() -> tuple[Any, Any]:
    return lambda s, b, h, i, j: 2 * tb.tanh(s / 2), causal


def _tables(table: Any) -> tuple[Any, Any]:
    """Documents of three lengths, and a relative bias that wraps around where it is masked."""
    document = tb.asarray([0] * 5 + [1] * 20 + [2] * 12, device=table.device)

    def same(b: Any, h: Any, i: Any, j: Any) -> Any:
        return document[i] == document[j]

    return lambda s, b, h, i, j: s + table[i - j], and_masks(causal, same)


CASES = {
    "plain": Case((2, 2, 19, 5), (2, 2, 37, 5), 3),
    "captured": Case((2, 4, 9, 5), (1, 2, 21, 5), 5, _bias, ((4, 9, 21), (4,), ())),
    "softcap, causal": Case((1, 4, 33, 16), (1, 2, 33, 16), 16, _softcap, ((4,),)),
    "rows that see nothing": Case((2, 2, 20, 6), (2, 2, 24, 6), 4, lambda: (None, sparse), block=(8, 4)),
    "documents": Case((1, 2, 37, 8), (1, 2, 37, 8), 8, _tables, ((37,),)),
    "one query": Case((2, 8, 1, 8), (2, 2, 300, 8), 8, lambda: (None, until), block=64),
    "blocks wider than all": Case((1, 1, 10, 4), (1, 1, 150, 4), 4, lambda: (None, window), block=200),
    "width 80": Case((1, 2, 20, 80), (1, 2, 20, 80), 80, lambda: (None, or_masks(causal, window))),
    "width 256": Case((1, 1, 9, 256), (1, 1, 17, 256), 256),
    "float16": Case((1, 2, 33, 20), (1, 2, 33, 20), 12, _capped, dtype="float16"),
    "bfloat16": Case((1, 2, 33, 20), (1, 2, 33, 20), 12, _capped, dtype="bfloat16"),
    "no keys": Case((1, 2, 3, 4), (1, 2, 0, 4), 4),
    "no queries": Case((1, 2, 0, 4), (1, 2, 3, 4), 4),
}  # fmt: skip


def dense(q: Any, k: Any, v: Any, score: Any, mask: Any) -> tuple[Any, Any]:
    """Return attention and its logarithms by the definition, with all scores at once."""
    (batch, heads, length, width), source = q.shape, k.shape[2]
    k, v = (tb.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = (q @ k.mT) / math.sqrt(width)
    lines = [tb.arange(n, device=q.device) for n in (batch, heads, length, source)]
    index = [x.reshape(tuple(-1 if a == n else 1 for a in range(4))) for n, x in enumerate(lines)]
    index = list(tb.broadcast_arrays(*index))
    if score is not None:
        scores = score(scores, *index)
    if mask is not None:
        scores = tb.where(mask(*index), scores, -float("inf"))
    if not source:
        none = tb.zeros((batch, heads, length), device=q.device)
        return tb.zeros((batch, heads, length, v.shape[3]), device=q.device) * q.sum(), none - float("inf")
    top = scores.max(axis=-1, keepdims=True).detach()
    powers = tb.exp(scores - tb.where(tb.isinf(top), 0.0, top))
    total = powers.sum(axis=-1, keepdims=True)
    dead = total == 0
    logs = tb.where(dead, -float("inf"), top + tb.log(tb.where(dead, 1.0, total)))
    return powers / tb.where(dead, 1.0, total) @ v, logs[..., 0]


def assert_near(ours: Any, exact: Any, dtype: str, what: str) -> None:
    """Check that two tensors agree to what sums over a few hundred terms in float32 lose, and storing."""
    a, b = (np.asarray(x.to(tb.float32).tolist(), dtype="f8").reshape(x.shape) for x in (ours, exact))
    size = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    narrow = 2 * stored(size, dtype) + 4 * stored(np.where(np.isfinite(b), b, 0), dtype)
    assert_within(a, b, 2 * gamma(256, "float32") * size + narrow, what)


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_dense_formula(device: str, name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        x = tb.asarray(rng.normal(size=shape).astype("f4"), device=device)
        return x.to(getattr(tb, case.dtype)).detach()

    try:
        value = drawn(*case.key[:3], case.width)
    except tb.UnsupportedDtypeError as error:
        pytest.skip(str(error))
    leaves = [x.requires_grad_() for x in (drawn(*case.query), drawn(*case.key), value)]
    learned = [drawn(*shape).to(tb.float32).detach().requires_grad_() for shape in case.captured]
    score, mask = case.mods(*learned)
    lengths = case.query[0], case.query[1], case.query[2], case.key[2]
    blocks = None if mask is None else create_block_mask(mask, *lengths, device=device, BLOCK_SIZE=case.block)

    def ours(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, score, blocks, enable_gqa=True, return_lse=True)

    exact = dense(*(x.to(tb.float32) for x in leaves), score, mask)
    weights = [drawn(*x.shape).to(tb.float32) for x in exact]
    # Where no key answers the logarithm is -inf, of which there is no gradient to speak of.
    weights[1] = tb.where(tb.isinf(exact[1]), 0.0, weights[1])

    def loss(out: Any, lse: Any) -> Any:
        return (out * weights[0]).sum() + (tb.where(tb.isinf(lse), 0.0, lse) * weights[1]).sum()

    inputs = [*leaves, *learned]
    right = tb.grad(loss(*exact), inputs, allow_unused=True)
    for how, run in (("eager", ours), ("compiled", tb.compile(ours, fullgraph=True))):
        run(*leaves)  # a first call runs eagerly where there is no program yet
        out, lse = run(*leaves)
        assert out.dtype is leaves[0].dtype
        assert lse.dtype is tb.float32
        for what, x, y in (("out", out, exact[0]), ("lse", lse, exact[1])):
            assert_near(x, y, case.dtype if what == "out" else "float32", f"{how} {what}")
        gradients = tb.grad(loss(out, lse), inputs, allow_unused=True)
        for place, (x, y) in enumerate(zip(gradients, right, strict=True)):
            if y is None or x is None:
                assert x is None or not x.any().item()
                continue
            assert_near(x, y, case.dtype if place < 3 else "float32", f"{how} gradient {place}")


def test_captured_tensors_may_be_indexed_in_parts(device: str) -> None:
    """Rows, views and what is computed of captured tensors alone are elements in the end."""
    q, bias = wave((1, 3, 5, 4), 0.3, device), wave((3, 6, 5), 0.7, device).requires_grad_()
    plain = flex_attention(q, q, q, lambda s, b, h, i, j: s + 2 * bias[h, 5 - i, j])
    parts = flex_attention(q, q, q, lambda s, b, h, i, j: s + (2 * bias.flip(1))[h][i][j])
    turned = flex_attention(q, q, q, lambda s, b, h, i, j: s + 2 * bias[h].mT.reshape(-1)[6 * j + 5 - i])
    right = tb.grad((plain * plain).sum(), bias)[0]
    for out in (parts, turned):
        assert_near(out, plain, "float32", "values")
        assert_near(tb.grad((out * out).sum(), bias)[0], right, "float32", "gradient")


def test_functions_that_are_made_anew_are_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus.nn.attention import program_cache, score_capture

    captured: list[Any] = []

    def capture(*of: Any) -> Any:
        captured.append(of)
        return score_capture.capture(*of)

    monkeypatch.setattr(program_cache, "capture", capture)
    monkeypatch.setattr(program_cache, "_programs", {})
    x = tb.random.normal((1, 2, 6, 4), device="cpu")
    table, other = (tb.random.normal((2, 6), device="cpu") for _ in range(2))
    doubles = tb.random.normal((2, 6), dtype=tb.float64, device="cpu")

    def added(bias: Any, factor: float = 1.0) -> Any:
        return lambda s, b, h, i, j: s + factor * bias.T[j, h]

    def by_value(bias: Any) -> Any:
        return lambda s, b, h, i, j: s * j if bias[0, 0] > 0 else s

    def by_item(bias: Any) -> Any:
        return lambda s, b, h, i, j: s + bias[0, 0].item() * j

    def outside(bias: Any) -> Any:
        return lambda s, b, h, i, j: s + tb.sum(bias) * j

    def masked(bias: Any) -> Any:
        return lambda s, b, h, i, j: tb.where(bias[h, j] > 0, s, -1.0)

    shift = [1.0]

    def by_list(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + shift[0] * j

    learned = other.detach().requires_grad_()
    # What to call it with in turn, and whether it is captured for it.
    steps = [
        (added(table), 1), (added(other), 0), (added(other), 0), (added(table, 2.0), 1), (added(doubles), 1),
        (added(learned), 1), (added(learned), 0), (by_value(abs(table)), 1), (by_value(-abs(table)), 1),
        (by_item(table), 1), (by_item(other), 1), (outside(table), 1), (outside(other), 1),
        (masked(table), 1), (masked(other), 0), (by_list, 1), (by_list, 1),
    ]  # fmt: skip
    for number, (score, times) in enumerate(steps):
        shift[0] = float(number)
        captured.clear()
        out = flex_attention(x, x, x, score)
        assert len(captured) == times, number
        assert_near(out, dense(x, x, x, score, None)[0], "float32", f"step {number}")
    captured.clear()
    near = 3
    nearer = and_masks(causal, lambda b, h, i, j: i - j < near)
    for mask in (nearer, and_masks(causal, window), or_masks(causal, window)):
        block = create_block_mask(mask, None, None, 6, 6, device="cpu")
        for _ in range(2):
            flex_attention(x, x, x, block_mask=block)
    assert len(captured) == 3


@pytest.mark.full
def test_transforms(device: str) -> None:
    """What is mapped or has a tangent may be operands, captured tensors, or both; masks are as they are."""
    rng = np.random.default_rng(2)
    q, k, v, weight = (
        tb.asarray(rng.normal(size=(2, 2, 9, 4)).astype("f4"), device=device) for _ in range(4)
    )
    slopes = tb.asarray(rng.normal(size=(3, 2)).astype("f4"), device=device)
    mask = create_block_mask(causal, None, None, 9, 9, device=device, BLOCK_SIZE=4)

    def attend(q: Any, k: Any, slope: Any) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + slope[h] * (i - j), mask)

    several = tb.stack([q, 2 * q, q + k])
    for axes in ((0, None, 0), (None, None, 0), (0, None, None)):
        operands = [several if axes[0] == 0 else q, k, slopes if axes[2] == 0 else slopes[0]]
        each = [[x[n] if axis == 0 else x for x, axis in zip(operands, axes, strict=True)] for n in range(3)]
        assert_near(
            tb.vmap(attend, in_dims=axes)(*operands),
            tb.stack([attend(*one) for one in each]),
            "float32",
            str(axes),
        )
    at = (q, k, slopes[0])
    leaves = [x.detach().requires_grad_() for x in at]
    gradients = tb.grad((attend(*leaves) * weight).sum(), leaves)
    for place in range(3):
        tangents = [tb.ones_like(x) if n == place else tb.zeros_like(x) for n, x in enumerate(at)]
        _, tangent = tb.func.jvp(attend, at, tuple(tangents))
        assert_near((tangent * weight).sum(), gradients[place].sum(), "float32", f"tangent {place}")
    slope = slopes[0]
    _, tangent = tb.func.jvp(lambda slope: attend(q, k, slope), (slope,), (tb.ones_like(slope),))
    assert_near((tangent * weight).sum(), gradients[2].sum(), "float32", "tangent of what is captured")


def test_lengths_may_be_open(device: str) -> None:
    """One program serves all lengths; the width of heads is its own."""

    def ours(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s - (i - j) * 0.1)

    run = tb.compile(ours, dynamic=True)
    for length, source, width in ((9, 7, 4), (9, 7, 4), (33, 21, 4), (17, 40, 4), (17, 40, 6)):
        shapes = ((1, 2, length, 4), (1, 2, source, 4), (1, 2, source, width))
        q, k, v = (wave(s, step, device) for s, step in zip(shapes, (0.3, 0.5, 0.7), strict=True))
        exact = dense(q, k, v, lambda s, b, h, i, j: s - (i - j) * 0.1, None)[0]
        assert_near(run(q, k, v), exact, "float32", f"{length} {source} {width}")
    assert len(tb.compile.explain(run)(q, k, v).recompiles) <= 1


def test_a_mask_made_in_a_program_of_open_lengths(device: str) -> None:
    """One program for one block, one for more; the numbers of rows that a mask is made of may be any."""

    def ours(q: Any) -> Any:
        mask = create_block_mask(causal, None, None, *q.shape[2:3] * 2, device=device, BLOCK_SIZE=16)
        return flex_attention(q, q, q, block_mask=mask), mask.blocks

    run = tb.compile(ours, dynamic=True)
    for length in (9, 5, 33, 17, 40):
        q = wave((1, 2, length, 4), 0.3, device)
        out, blocks = run(q)
        assert_near(out, dense(q, q, q, None, causal)[0], "float32", f"{length}")
        assert blocks.tolist() == ours(q)[1].tolist()
    assert len(run.recompiles) <= 1


def wave(shape: tuple[int, ...], step: float, device: str) -> Any:
    values = np.sin(np.arange(math.prod(shape)) * step).reshape(shape).astype("f4")
    return tb.asarray(values, device=device)


RECORDED = {
    "out": [-0.711603115, -0.425410205, 0.066373353, 0.526080246, 0.731545051, 0.307431249, 0.264626585,
            0.093934179, -0.122154385, -0.279208636],
    "lse": [1.995298511, 1.762961517, 1.882502395, 2.298705263, 2.054010059],
    "query": [0.0784458, -0.068853043, -0.197259585, -0.271540886, -0.271315208, -0.196644474],
    "key": [0.011101324, 0.043528951, 0.070065139, 0.087118339, 0.09238048, 0.085139357],
    "value": [0.047887876, 0.01665441, -0.014780371, -0.04603649, -0.076736129],
    "slopes": [2.394552202, -2.300244874, 1.87604143, -1.858593249],
    "blocks": [[[2, 3, 3]], [[2, 3, 3]]],
    "indices": [[0, 1, 2], [0, 1, 2], [0, 1, 2]],
    "q_blocks": [[[3, 3, 2]], [[3, 3, 2]]],
    "picture": "(0, 0)\n████  \n██████\n██████\n\n(1, 0)\n████  \n██████\n██████\n",
}  # fmt: skip
"""What PyTorch 2.13 computes in float64: by ``flex_attention``, and gradients by the dense formula."""


def test_it_is_what_pytorch_computes(device: str) -> None:
    q, k = wave((2, 4, 20, 6), 0.37, device), wave((2, 2, 24, 6), 0.53, device)
    v, slopes = wave((2, 2, 24, 5), 0.71, device), wave((4,), 1.3, device)
    inputs = [x.requires_grad_() for x in (q, k, v, slopes)]

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx + 4 >= kv_idx) & ((q_idx + kv_idx) % 5 != b)

    mask = create_block_mask(mask_mod, 2, None, 20, 24, device=device, BLOCK_SIZE=8)
    out, lse = flex_attention(
        q, k, v, lambda s, b, h, i, j: tb.tanh(s / 2) * 2 + slopes[h] * (j - i) / 8, mask, enable_gqa=True,
        return_lse=True,
    )  # fmt: skip
    total = (out * wave(out.shape, 0.11, device)).sum() + (lse * wave(lse.shape, 0.19, device)).sum()
    dq, dk, dv, ds = tb.grad(total, inputs)
    results = {"out": out[1, 3, :2], "lse": lse[0, 2, :5], "query": dq[1, 2, 7], "key": dk[0, 1, 3],
             "value": dv[1, 0, 23], "slopes": ds}  # fmt: skip
    for name, x in results.items():
        terms = 2 * 20 * 24 if name == "slopes" else 20 + 24 + 6
        size = np.abs(RECORDED[name]).max()
        assert_within(np.ravel(x.tolist()), RECORDED[name], gamma(terms, "float32") * size, name)
    assert mask.kv_num_blocks.tolist() == RECORDED["blocks"]
    assert mask.kv_indices[0, 0].tolist() == RECORDED["indices"]
    assert mask.q_num_blocks.tolist() == RECORDED["q_blocks"]
    assert mask.to_string() == RECORDED["picture"]
    assert_within(mask.sparsity(), -20 / 3, gamma(3, "float64") * 100)


def test_keys_in_pages_by_a_table(device: str) -> None:
    """The keys of two sequences lie in pages of four, in any order; a table says whose page is where."""
    rng = np.random.default_rng(0)
    q, k, v = (tb.asarray(rng.normal(size=s).astype("f4"), device=device)
               for s in ((2, 2, 3, 8), (2, 2, 8, 8), (2, 2, 8, 8)))  # fmt: skip
    pages, owner, place = [5, 0, 3, 2], [1, -1, 1, 0, -1, 0], [0, 0, 4, 0, 0, 4]
    place[pages[0]], place[pages[1]], place[pages[2]], place[pages[3]] = 0, 4, 0, 4
    for n, page in enumerate(pages):
        owner[page] = n // 2
    stored = tb.zeros((2, 1, 2, 24, 8), device=device)
    for n, page in enumerate(pages):
        rows = slice(4 * (n % 2), 4 * (n % 2) + 4)
        stored[0, 0, :, 4 * page : 4 * page + 4] = k[n // 2, :, rows]
        stored[1, 0, :, 4 * page : 4 * page + 4] = v[n // 2, :, rows]
    owners, places = (tb.asarray(x, device=device) for x in (owner, place))

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        page = kv_idx // 4
        return (owners[page] == b) & (places[page] + kv_idx % 4 <= q_idx + 5)

    paged = create_block_mask(mask_mod, 2, None, 3, 24, device=device, BLOCK_SIZE=(3, 4))
    plain = create_block_mask(lambda b, h, i, j: j <= i + 5, None, None, 3, 8, device=device)
    ours = flex_attention(q, stored[0], stored[1], block_mask=paged)
    assert_near(ours, flex_attention(q, k, v, block_mask=plain), "float32", "paged")
    assert paged.sparsity() > 50


def test_masks(device: str) -> None:
    def on(mod: Any, *lengths: Any, **named: Any) -> BlockMask:
        return create_block_mask(mod, *lengths, device=device, **named)

    whole = on(causal, 2, 3, 50, 40, BLOCK_SIZE=(16, 8))
    assert whole.shape == (2, 3, 50, 40)
    assert whole.numel() == 2 * 3 * 50 * 40
    mask = np.asarray(create_mask(causal, None, None, 50, 40, device=device).tolist())[0, 0]
    assert (mask == np.tri(50, 40, dtype=bool)).all()
    padded = np.zeros((64, 40), bool)
    padded[:50] = mask
    tiles = padded.reshape(4, 16, 5, 8)
    states = tiles.any((1, 3)).astype(int) + tiles.all((1, 3))
    assert (np.asarray(whole.blocks.tolist()) == states).all()
    again = BlockMask.from_kv_blocks(
        whole.kv_num_blocks, whole.kv_indices, whole.full_kv_num_blocks, whole.full_kv_indices,
        BLOCK_SIZE=(16, 8), mask_mod=causal, seq_lengths=(50, 40),
    )  # fmt: skip
    assert again.blocks.tolist() == whole.blocks.tolist()
    assert whole[1].shape == (1, 3, 50, 40)
    assert whole[0:1, -1, 1:3].shape == (1, 1, 32, 40)
    assert whole[0, 0, 3].shape == (1, 1, 2, 40)
    assert whole[:, :, tb.asarray([0, 2], device=device)].blocks.tolist() == whole.blocks[:, :, ::2].tolist()
    assert whole.cropped(20, 20).blocks.tolist() == whole.blocks[:, :, :2, :3].tolist()
    assert whole.cropped(70, 41).blocks.shape == (2, 3, 5, 6)
    wrong = {"a block": (1, 5), "before the first": (1, -1), "blocks": (6, 0), "none": (-1, 0)}
    for count, number in wrong.values():
        lists = [tb.asarray(x, device=device) for x in ([[count]], [[[number] * 5]])]
        with pytest.raises(tb.IndexingError, match="out of range"):
            BlockMask.from_kv_blocks(*lists).blocks.tolist()
    moved = whole.to("cpu")
    assert moved.device.type == "cpu"
    assert moved.mask_mod is causal
    scores = create_mask(
        lambda s, b, h, i, j: tb.where(i >= j, s, -float("inf")), 1, 1, 50, 40, device=device
    )
    assert (np.asarray(scores.tolist())[0, 0] == mask).all()


@pytest.mark.parametrize(("change", "error", "text"), [
    ({"score_mod": lambda s, b, h, i, j: tb.sum(s)}, tb.UnsupportedOpError, "score_mod uses 'sum'"),
    ({"score_mod": lambda s, b, h, i, j: BIAS[h]}, tb.ShapeError, "returned a tensor of shape"),
    ({"score_mod": lambda s, b, h, i: s}, tb.ArgumentError, r"a function of \(score, b, h, q_idx, kv_idx\)"),
    ({"block_mask": (lambda b, h, i: i, 8, 8)}, tb.ArgumentError, r"a function of \(b, h, q_idx, kv_idx\)"),
    ({"score_mod": lambda s, b, h, i, j: s + None}, TypeError, "NoneType"),
    ({"score_mod": 3}, tb.ArgumentError, "score_mod is a function"),
    ({"block_mask": causal}, tb.ArgumentError, "create_block_mask"),
    ({"block_mask": (lambda b, h, i, j: i - j, 8, 8)}, tb.DtypeError, "must return a bool"),
    ({"block_mask": (causal, 8, 9)}, tb.ShapeError, "for 8 queries and 9 keys"),
    ({"block_mask": "sliced"}, tb.StateError, "Set the mask_mod"),
    ({"query": (1, 4, 8, 4)}, tb.ShapeError, "enable_gqa=True"),
    ({"query": (1, 2, 8, 5)}, tb.ShapeError, "one width"),
    ({"query": (2, 8, 4)}, tb.ShapeError, "4 dimensions"),
    ({"kernel_options": 5}, tb.ArgumentError, "kernel_options"),
], ids=lambda x: x if isinstance(x, str) else "")  # fmt: skip
def test_errors_say_what_is_wrong(change: dict[str, Any], error: type[Exception], text: str) -> None:
    shapes = {"query": (1, 2, 8, 4), "key": (1, 2, 8, 4), "value": (1, 2, 8, 4)}
    named = dict(change)
    operands = [tb.ones(named.pop(name, shape), device="cpu") for name, shape in shapes.items()]

    def call() -> Any:
        if isinstance(mask := named.get("block_mask"), tuple):
            named["block_mask"] = create_block_mask(mask[0], None, None, *mask[1:], device="cpu")
        elif mask == "sliced":
            named["block_mask"] = create_block_mask(causal, None, None, 8, 8, device="cpu")[0]
        return flex_attention(*operands, **named)

    with pytest.raises(error, match=text):
        call()


BIAS = tb.ones((2, 3), device="cpu")


def peak_of(device: str, length: int) -> int:
    """Return the bytes at the peak of a forward and backward run, beyond those before it."""
    q, k, v = (wave((1, 1, length, 4), step, device).requires_grad_() for step in (0.3, 0.5, 0.7))
    mask = create_block_mask(causal, None, None, length, length, device=device, BLOCK_SIZE=64)

    def run() -> None:
        out = flex_attention(q, k, v, lambda s, b, h, i, j: s * 2, mask)
        np.asarray([x.tolist() for x in tb.grad(out.sum(), (q, k, v))])

    return peak_bytes(device, run)


@pytest.mark.full
def test_memory_grows_as_the_lengths_do(device: str) -> None:
    """Four times as many queries and keys take about four times as much, and not sixteen times."""
    short, long = (peak_of(device, n) for n in (256, 1024))
    assert 0 < long < 7 * short
