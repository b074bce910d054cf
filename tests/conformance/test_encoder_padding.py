"""Inference with padding: encoders give 0 there, elsewhere what it is; no work for it, nor in attention."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus.func import Mode
from tensorbus.nn.attention import SDPBackend, packed_rows, sdpa_kernel

from error_bounds import assert_alike

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
        if op.name in ("linear", "matmul") and operands[1].ndim == 2:
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
        result = tb.compile(model, **options) if options else model
        with tb.no_grad():
            return result(x, src_key_padding_mask=padding)

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


ATTENTION: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "to itself": ("query", {}, {}),
    "no shares": ("query", {}, {"need_weights": False}),
    "shares of heads": ("query", {"batch_first": True}, {"average_attn_weights": False}),
    "of others": ("key", {"batch_first": True, "bias": False}, {"need_weights": False}),
    "other values": ("value", {}, {}),
    "widths": ("value", {"kdim": 5, "vdim": 6, "batch_first": True}, {}),
    "more keys": ("key", {"add_bias_kv": True, "add_zero_attn": True}, {"need_weights": False}),
    "shares of more keys": ("key", {"add_bias_kv": True, "kdim": 5, "vdim": 5}, {}),
    "masked": ("query", {"batch_first": True}, {"attn_mask": "bool", "need_weights": False}),
    "causal": ("query", {}, {"attn_mask": "causal", "is_causal": True}),
    "added": ("key", {"batch_first": True}, {"attn_mask": "heads"}),
    "training": ("query", {"batch_first": True}, {"attn_mask": "float"}),
    "bfloat16": ("key", {"batch_first": True}, {}),
}
"""Which of query, key and value is the last that differs from those before, and options of class and call."""


def attention_case(
    name: str, kind: str, added: bool, dtype: Any, device: str
) -> tuple[Any, tuple[Any, ...], Any]:
    """Return a module, the positional arguments of a call, and those by name."""
    differs, options, named = ATTENTION[name]
    tb.manual_seed(4)
    module = tb.nn.MultiheadAttention(WIDTH, HEADS, **options, device=device, dtype=dtype)
    module.train(name == "training")
    batch, source, length = 3, 5, 5 if differs == "query" else 4
    first = options.get("batch_first", False)

    def draw(length: int, width: int) -> Any:
        shape = (batch, length, width) if first else (length, batch, width)
        return tb.random.normal(shape, device=device).to(dtype)

    query = draw(length, WIDTH)
    key = query if differs == "query" else draw(source, module.kdim)
    value = draw(source, module.vdim) if differs == "value" else key
    padding = padding_of(kind, batch, source, device)
    scores = {
        "bool": tb.arange(source, device=device) == tb.arange(length, device=device)[:, None],
        "causal": tb.triu(tb.ones((length, source), dtype=tb.bool, device=device), k=1),
        "float": tb.random.normal((length, source), device=device).to(dtype),
        "heads": tb.random.normal((batch * HEADS, length, source), device=device).to(dtype),
    }
    named = {k: scores[v] if k == "attn_mask" else v for k, v in named.items()}
    each = tb.where(padding, float("-inf"), 0.5).to(dtype) if added else padding
    return module, (query, key, value, each), named


@pytest.mark.parametrize("name", ATTENTION)
def test_keys_that_are_padding_are_not_projected(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are those of all keys, and every query counts."""
    dtypes = {"to itself": (tb.float32, tb.float16), "bfloat16": (tb.bfloat16,)}
    for kind in PADDING:
        for dtype in dtypes.get(name, (tb.float32,)):
            for added in (False, True):
                module, args, named = attention_case(name, kind, added, dtype, device)
                results, rows = [], []
                for fewest in (packed_rows._FEWEST_PRODUCTS, 0):
                    monkeypatch.setattr(packed_rows, "_FEWEST_PRODUCTS", fewest)
                    monkeypatch.setattr(packed_rows, "_FEWEST_PRODUCTS_IN_STREAMS", fewest)
                    with tb.no_grad(), Rows() as seen:
                        results.append(module(*args, **named))
                    rows.append(seen.rows)
                queries = args[0].size // WIDTH
                keys = args[1].size // module.kdim
                real = keys - int(padding_of(kind, 3, 5, device).sum())
                assert rows == [{queries, keys}, {queries, real}], (kind, dtype)
                assert_alike(results[1], results[0], 2 * WIDTH, dtype, message=f"{kind} {dtype} {added}")
                monkeypatch.undo()


def test_where_keys_that_are_padding_are_projected(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where values cannot be had or something is learned; what does not fit is an error as ever."""
    monkeypatch.setattr(packed_rows, "_FEWEST_PRODUCTS", 0)
    monkeypatch.setattr(packed_rows, "_FEWEST_PRODUCTS_IN_STREAMS", 0)
    module, (x, _, _, padding), _ = attention_case("shares of heads", "anywhere", False, tb.float32, device)

    def run(x: Any, padding: Any) -> Any:
        return module(x, x, x, padding)

    with tb.no_grad():
        right = run(x, padding)
        ways = [tb.compile(run, fullgraph=True)(x, padding), tb.compile(run, dynamic=True)(x, padding)]
        alone = tb.vmap(lambda x, padding: run(x, padding))(x, padding)  # two axes: no batch
        ways += [alone, run(x[0], padding[0])]
        with pytest.raises(tb.ShapeError, match="key_padding_mask"):
            run(x, padding[:, 1:])
        with pytest.raises(tb.DtypeError, match="mask"):
            run(x, padding.to(tb.int32))
        with pytest.raises(tb.ShapeError, match="weight of shape"):
            module(x, x[..., 1:], x, padding)
        meta = tb.nn.MultiheadAttention(WIDTH, HEADS, device="meta")
        empty = tb.zeros((5, 3, WIDTH), device="meta")
        assert meta(empty, empty, empty, padding.to("meta"))[0].shape == empty.shape
    ways[-1] = tuple(tb.stack([y, *r[1:]]) for y, r in zip(ways[-1], right, strict=True))
    with Rows() as seen:
        ways.append(run(x, padding))
    assert seen.rows == {15}
    for result in ways:
        assert_alike([y.detach() for y in result], [*right], 2 * WIDTH)


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
