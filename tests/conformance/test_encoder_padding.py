"""Inference of ``TransformerEncoder`` with padding: 0 there, elsewhere what it is, and no work for it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus.func import Mode
from tensorbus.nn.attention import SDPBackend, sdpa_kernel

WIDTH, HEADS, LAYERS = 8, 2, 2
LENGTHS = {"few scores": (3, 5), "tiles": (2, 370)}
PADDING = ("behind", "anywhere", "all of one", "all", "none")


def encoder(device: str, **options: Any) -> Any:
    """Return two layers for inference."""
    tb.manual_seed(3)
    named = {"enable_nested_tensor", "mask_check"} & options.keys()
    outer = {name: options.pop(name) for name in named}
    layer = tb.nn.TransformerEncoderLayer(WIDTH, HEADS, 12, device=device, **options)
    return tb.nn.TransformerEncoder(layer, LAYERS, **outer).eval()


def padding_of(kind: str, batch: int, length: int, device: str) -> Any:
    """Return which places are padding, bool."""
    place = tb.arange(length, device=device)[None] + tb.zeros((batch, 1), dtype=tb.int64, device=device)
    number = tb.arange(batch, device=device)[:, None]
    return {
        "behind": place >= length - 2 - number * (length // 2), "anywhere": (place * 7 + number) % 3 == 1,
        "all of one": (number == 0) | (place < 1), "all": place >= 0, "none": place < 0,
    }[kind]  # fmt: skip


class Rows(Mode):
    """Notes how many rows products with weights have."""

    guarded = True

    def __init__(self) -> None:
        self.rows: set[int] = set()

    def apply(self, op: Any, operands: Any, attrs: Any) -> Any:
        if op.name == "linear":
            self.rows.add(operands[0].size // operands[0].shape[-1])
        return NotImplemented


def ends(model: Any, x: Any, mask: Any, padding: Any, batch_first: bool) -> Any:
    """Return what the layers give one after the other, 0 where there is padding."""
    for layer in model.layers:
        x = layer(x, mask, padding)
    real = padding == float("-inf") if padding.dtype.is_floating else padding
    return tb.where((real if batch_first else real.T)[..., None], 0, x)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "length first"])
def test_padding_is_left_out(device: str, batch_first: bool, length: str) -> None:
    batch, long = LENGTHS[length]
    if length == "tiles" and device == "refdev":
        long = 70
    model = encoder(device, batch_first=batch_first, norm_first=not batch_first, activation="gelu")
    shape = (batch, long, WIDTH) if batch_first else (long, batch, WIDTH)
    x = tb.random.normal(shape, device=device)
    causal = tb.triu(tb.ones((long, long), dtype=tb.bool, device=device), k=1)
    heads = tb.random.normal((batch * HEADS, long, long), device=device)
    cases = [(kind, None) for kind in PADDING] + [("behind", causal), ("anywhere", heads)]
    for kind, mask in cases:
        padding = padding_of(kind, batch, long, device)
        for each in (padding, tb.where(padding, float("-inf"), 0.0)):
            with tb.no_grad(), Rows() as seen:
                out = model(x, mask, each)
            assert seen.rows <= {int((~padding).sum())}
            with tb.no_grad():
                right = ends(model, x, mask, each, batch_first)
            assert tb.max(tb.abs(out - right)) < 2e-5, (kind, each.dtype)


def test_a_sequence_sees_nothing_of_another(device: str) -> None:
    model, x = encoder(device, batch_first=True), tb.ones((3, 5, WIDTH), device=device)
    x[1] = float("nan")
    padding = padding_of("behind", 3, 5, device)
    with tb.no_grad():
        out = model(x, src_key_padding_mask=padding)
    assert not tb.any(tb.isnan(out[::2]))
    assert tb.all(out[1, 3:] == 0)


def test_the_same_compiled_hooked_and_by_vmap(device: str) -> None:
    model, x = encoder(device, batch_first=True), tb.random.normal((3, 5, WIDTH), device=device)
    padding = padding_of("anywhere", 3, 5, device)

    def run(model: Any, **options: Any) -> Any:
        made = tb.compile(model, **options) if options else model
        with tb.no_grad():
            return made(x, src_key_padding_mask=padding)

    right = run(model)
    ways = [run(model, fullgraph=True), run(model, dynamic=True), run(model, fullgraph=False)]
    for options in ({"fullgraph": True}, {"fullgraph": False}):
        breaking = encoder(device, batch_first=True, mask_check=False)
        ways.append(run(breaking, **options))
    with tb.no_grad():
        each = tb.vmap(lambda x, padding: model(x[None], src_key_padding_mask=padding[None])[0])
        ways.append(each(x, padding))
    calls: list[Any] = []
    model.layers[0].linear1.register_forward_hook(lambda *of: calls.append(of))
    ways.append(run(model))
    assert len(calls) == 1
    for out in ways:
        assert tb.max(tb.abs(out - right)) < 2e-5


def test_where_padding_is_computed(device: str) -> None:
    x, padding = tb.ones((3, 5, WIDTH), device=device), padding_of("behind", 3, 5, device)
    plain = encoder(device, batch_first=True)
    others = [
        encoder(device, batch_first=True, enable_nested_tensor=False),
        encoder(device, batch_first=True, activation=tb.tanh),
        encoder(device, batch_first=True).train(),
    ]
    with tb.no_grad():
        assert not any(tb.all(model(x, src_key_padding_mask=padding)[padding] == 0) for model in others)
        with pytest.raises(tb.ShapeError, match="key_padding_mask"):
            plain(x, src_key_padding_mask=padding[:, 1:])
        with pytest.raises(tb.DtypeError, match="mask"):
            plain(x, src_key_padding_mask=padding.to(tb.int32))
    assert not tb.all(plain(x, src_key_padding_mask=padding)[padding] == 0)
    meta = encoder("meta", batch_first=True)
    with tb.no_grad():
        assert meta(x.to("meta"), src_key_padding_mask=padding.to("meta")).shape == x.shape


@pytest.mark.full
def test_blocks_of_keys_that_are_padding_are_left_out(device: str) -> None:
    """Of ``MultiheadAttention``, with its gradient: keys of other lengths, one sequence all padding."""
    tb.manual_seed(1)
    module = tb.nn.MultiheadAttention(16, 4, batch_first=True, device=device)
    x, keys = tb.random.normal((3, 100, 16), device=device), tb.random.normal((3, 230, 16), device=device)
    padding = tb.arange(230, device=device)[None] >= tb.asarray([[230], [70], [0]], device=device)
    mask = tb.random.normal((12, 100, 230), device=device)
    for scores in (None, mask > 1, mask):
        for each in (padding, tb.where(padding, float("-inf"), 0.5)):
            results = []
            for backends in ([*SDPBackend][1:], SDPBackend.MATH):
                leaf = x.detach().requires_grad_()
                with sdpa_kernel(backends):
                    out, _ = module(leaf, keys, keys, each, need_weights=False, attn_mask=scores)
                results.append((out, *tb.grad((out * out).sum(), [leaf])))
            for ours, right in zip(*results, strict=True):
                assert tb.max(tb.abs(ours - right)) < 1e-5
