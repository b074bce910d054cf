"""MLX's own functions as kernels, on the host: what they give, and which calls they are not taken for."""

from __future__ import annotations

import pytest

from metal_host import needs_host, printed

pytestmark = [needs_host, pytest.mark.full]
HEAD = """
from error_bounds import assert_alike, gamma, unit
from tensorbus import dtypes as dt
tb.manual_seed(1)
ROUNDINGS, NARROW = 64, 4  # of the longest sum, twice; of what is stored on the way

def drawn(*shape, dtype=tb.float32):
    return tb.randn(*shape, device="cpu").to(dtype)

def apart(fn, *given, **attrs):
    '''Return how far the results are from those of the cpu device, in units of the largest one.'''
    want = fn(*given, **attrs).to(tb.float32)
    got = fn(*(x.to("metal") for x in given), **attrs)
    assert got.dtype is given[0].dtype and got.shape == want.shape, (got.dtype, got.shape, want.shape)
    return (got.to("cpu").to(tb.float32) - want).abs().max().item() / want.abs().max().item()

def kernel(fn, *given, **attrs):
    '''Return the name of the kernel that serves the call, or that it is decomposed.'''
    (made,) = [d for d in tb.explain(fn, *given, **attrs).decisions if d.op.name == fn][:1]
    return made.chosen.kernel.name if made.chosen else "decomposed"
"""


def test_products_norms_and_attention_are_near_those_of_the_cpu() -> None:
    program = """
for dtype in (tb.float32, tb.float16, tb.bfloat16):
    limit = gamma(ROUNDINGS, tb.float32) + (0 if dtype is tb.float32 else NARROW * unit(dtype))
    def d(*shape):
        return drawn(*shape, dtype=dtype)
    found = {
        "product": apart(tb.matmul, d(5, 7, 9), d(9, 4)),
        "turned": apart(lambda x, y: x.mT @ y, d(9, 7), d(9, 4)),
        "layer norm": apart(lambda x, w: tb.layer_norm(x, (3, 10), w, w), d(6, 3, 10), d(3, 10)),
        "rms norm": apart(lambda x, w: tb.nn.functional.rms_norm(x, (31,), w), d(6, 31), d(31)),
    }
    q, k, v = d(2, 4, 5, 8), d(2, 2, 7, 8), d(2, 2, 7, 8)
    attend = tb.scaled_dot_product_attention
    found["attention"] = apart(attend, q, k, v, enable_gqa=True)
    found["causal"] = apart(attend, q, q, q, is_causal=True, scale=0.3)
    found["causal, longer keys"] = apart(attend, d(1, 2, 3, 8), d(1, 2, 6, 8), d(1, 2, 6, 8), is_causal=True)
    print([name for name, off in found.items() if not off < limit])
"""
    assert printed(HEAD + program) == ["[]"] * 3


def test_convolutions_are_near_those_of_the_cpu() -> None:
    program = """
off = []
for rank in (1, 2, 3):
    x = drawn(2, 6, *(9, 8, 7)[:rank])
    for groups, stride, padding, dilation in ((1, 1, 0, 1), (2, 2, 1, 1), (3, 1, 2, 2), (1, 3, 1, 2)):
        attrs = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        there, back = getattr(tb, f"conv{rank}d"), getattr(tb, f"conv_transpose{rank}d")
        off.append(apart(there, x, drawn(12, 6 // groups, *(3, 2, 3)[:rank]), drawn(12), **attrs))
        more = dict(attrs, output_padding=1) if stride > 1 else attrs
        off.append(apart(back, x, drawn(6, 4, *(3, 3, 3)[:rank]), **more))
print(len(off), max(off) < gamma(ROUNDINGS, tb.float32))
"""
    assert printed(HEAD + program) == ["24 True"]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("'matmul', tb.ones((2, 3)), tb.ones((3, 2))", "matmul"),
        ("'conv', tb.ones((1, 2, 5, 5)), tb.ones((2, 2, 3, 3))", "mlx"),
        ("'conv', tb.ones((1, 4, 5, 5, 5)), tb.ones((4, 2, 3, 3, 3)), groups=2", "decomposed"),
        ("'conv', tb.ones((0, 2, 5, 5)), tb.ones((2, 2, 3, 3))", "decomposed"),
        ("'conv_transpose', tb.ones((1, 2, 5, 5)), tb.ones((2, 2, 3, 3)), padding=2", "mlx"),
        ("'conv_transpose', tb.ones((1, 2, 5, 5)), tb.ones((2, 2, 2, 2)), padding=2", "decomposed"),
        ("'scaled_dot_product_attention', *[tb.ones((1, 2, 3, 4))] * 3, is_causal=True", "mlx"),
        ("'scaled_dot_product_attention', *[tb.ones((2, 3, 4))] * 3", "decomposed"),
        ("'scaled_dot_product_attention', *[tb.ones((1, 2, 3, 4))] * 3, tb.ones((3, 3))", "decomposed"),
        ("'standardize', tb.ones((4, 8)), rank=1", "layer_norm"),
        ("'to_unit_rms', tb.ones((4, 8)), rank=1", "rms_norm"),
    ],
)
def test_which_kernel_serves_a_call(call: str, wanted: str) -> None:
    assert printed(f"{HEAD}\nprint(kernel({call}))")[-1] == wanted


def test_a_compiled_program_calls_them_and_gives_the_same() -> None:
    program = """
from tensorbus import plugins
from tensorbus.backend_api import CompileRequest

def model(x, w, q, mask=None):
    y = tb.relu(tb.conv2d(x * 2, w, padding=1)) + 1
    return y.sum(axis=(2, 3)), tb.scaled_dot_product_attention(q, q, q, mask) * 3

x, w, q = (drawn(*s).to("metal") for s in ((2, 3, 6, 6), (4, 3, 3, 3), (1, 2, 5, 8)))
for mask in (None, tb.asarray([[True, False, True, True, False]] * 5)):
    report = tb.compile.explain(model)(x, w, q, mask)
    fn = tb.compile(model, fullgraph=True)
    assert_alike(fn(x, w, q, mask), model(x, w, q, mask), ROUNDINGS)
    order = CompileRequest(graph=report.graphs[0], index=0)
    steps = plugins.backend("metal").lowering().compile(order).stages()["loops"]
    print([op for op in ("conv", "scaled_dot_product_attention") if f"call {op}" in steps])
"""
    assert printed(HEAD + program) == ["['conv', 'scaled_dot_product_attention']", "['conv']"]
