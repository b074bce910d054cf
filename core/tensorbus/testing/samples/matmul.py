"""Samples of matrix products, attention, and normalization over the last axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Final

from ...backend_interface.graph import Node
from ...devices.device import Device
from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import DtypeError, ShapeError
from ...ops.definition import Shape, Spec
from ..sample import INF, NAN, Fill, Sample


def _matmul() -> Iterator[Sample]:
    for x, y in (
        ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((5, 2, 3), (3, 4)), ((2, 1, 3, 2), (4, 2, 3)), ((2, 0), (0, 3)),
        ((0, 2), (2, 3)), ((3, 2), (2, 0)), ((0, 2, 3), (0, 3, 1)), ((33, 70), (70, 17)),
        ((3, 3), (3, 3)), ((2, 1, 2, 3, 2), (2, 1, 2, 3)),
    ):  # fmt: skip
        yield Sample(args=(Fill(shape=x, low=-2, high=2), Fill(shape=y, low=-2, high=2)))
    large = (Fill(shape=(150, 200), low=-2, high=2), Fill(shape=(200, 120), low=-2, high=2))
    yield Sample(args=large, large=True, note="large")
    outer = (Fill(shape=(300, 7), low=-2, high=2), Fill(shape=(7, 290), low=-2, high=2))
    yield Sample(args=outer, large=True, note="large")
    edges = Fill(shape=(3, 2), values=(NAN, 1, INF, 2, -1, 1))
    yield Sample(args=(edges, Fill(shape=(2, 2), values=(1, 2, 3, 1))), smooth=False, note="edges")
    yield Sample(args=(Fill(shape=(2, 3)), Fill(shape=(2, 3))), raises=ShapeError)
    yield Sample(args=(Fill(shape=(3,)), Fill(shape=(3, 2))), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 2, 3)), Fill(shape=(3, 3, 2))), raises=ShapeError)


def _affine() -> Iterator[Sample]:
    for x, y, *added in (
        ((2, 3), (3, 4), (4,)), ((2, 3), (3, 4), (4,), (2, 4)), ((2, 5, 3), (3, 4), (2, 5, 4)),
        ((2, 3), (3, 4), (2, 1)), ((16, 8), (8, 24), (24,)), ((0, 3), (3, 4), (4,)), ((2, 0), (0, 3), (3,)),
        ((3, 2), (2, 4)),
    ):  # fmt: skip
        yield Sample(args=tuple(Fill(shape=shape, low=-2, high=2) for shape in (x, y, *added)))
    shapes = ((160, 200), (200, 128), (128,), (160, 128))
    row = tuple(Fill(shape=shape, low=-2, high=2) for shape in ((16, 8), (8, 24), (24,)))
    for ends in ("relu", "gelu_tanh"):
        yield Sample(args=row, kwargs={"ends": ends}, dtypes=dt.FLOATING)
        yield Sample(args=row[:2], kwargs={"ends": ends}, dtypes=dt.FLOATING)
    large = tuple(Fill(shape=shape, low=-2, high=2) for shape in shapes)
    yield Sample(args=large, large=True, note="large")
    yield Sample(args=(Fill(shape=(2, 3)), Fill(shape=(2, 3)), Fill(shape=(3,))), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)), Fill(shape=(3, 4)), Fill(shape=(3,))), raises=ShapeError)


def _scaled() -> Iterator[Sample]:
    def fills(x: Shape, y: Shape, *others: Shape) -> tuple[Fill, ...]:
        return (
            Fill(shape=x, low=-4, high=4), Fill(shape=y, low=-4, high=4),
            *(Fill(shape=shape, dtype=dt.float32, low=0.5, high=2) for shape in others),
        )  # fmt: skip

    for shapes in (
        ((2, 3), (3, 4), (), ()), ((16, 32), (32, 16), (), (), (16,)), ((33, 70), (70, 17), (1, 1), (1,)),
        ((5, 2, 3), (3, 4), (5, 2, 1), (4,)), ((2, 4, 3), (2, 3, 5), (4, 1), (1, 5), (2, 1, 5)),
        ((2, 0), (0, 3), (), (), (3,)), ((0, 2), (2, 3), (), ()), ((4, 16, 48), (48, 32), (), ()),
    ):  # fmt: skip
        for dtype in (dt.float32, dt.float16):
            yield Sample(args=fills(*shapes), kwargs={"dtype": dtype})
    yield Sample(args=fills((160, 200), (200, 128), (), (), (128,)), kwargs={"dtype": dt.float16}, large=True)
    yield Sample(args=fills((2, 3), (2, 3), (), ()), raises=ShapeError)
    yield Sample(args=fills((2, 3), (3, 4), (3,), ()), raises=ShapeError, note="a scale that does not fit")
    yield Sample(args=fills((2, 3), (3, 4), (), ()), kwargs={"dtype": dt.int8}, raises=DtypeError)
    float_y = (Fill(shape=(2, 3)), Fill(shape=(3, 4), dtype=dt.float32), *fills((2, 3), (3, 4), (), ())[2:])
    yield Sample(args=float_y, raises=DtypeError, note="an operand that is not narrow")


def _standardize() -> Iterator[Sample]:
    for shape, rank in (((5,), 1), ((2, 3), 1), ((2, 3), 2), ((2, 3, 4), 2), ((0, 3), 1), ((3, 70), 1)):
        yield Sample(args=(Fill(shape=shape), rank), kwargs={"eps": 0.01})
    yield Sample(args=(Fill(shape=(2, 3)), 3), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)), 0), raises=ShapeError)


def _attention() -> Iterator[Sample]:
    def fills(*shapes: Shape) -> list[Fill]:
        return [Fill(shape=shape, low=-1, high=1) for shape in shapes]

    for shapes, kwargs in (
        (((3, 4), (5, 4), (5, 2)), {}),
        (((2, 3, 4), (2, 3, 4), (2, 3, 4)), {"is_causal": True}),
        (((2, 1, 3, 4), (1, 5, 4), (2, 3, 5, 2)), {"scale": 0.25}),
        (((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3)), {"enable_gqa": True}),
        (((0, 3, 4), (0, 5, 4), (0, 5, 4)), {}),
    ):  # fmt: skip
        yield Sample(args=tuple(fills(*shapes)), kwargs=kwargs)
    q, k, v = fills((2, 3, 4), (2, 5, 4), (2, 5, 2))
    for mask in (Fill(shape=(3, 5), dtype=dt.bool_, values=(True, True, False)), Fill(shape=(2, 1, 5))):
        yield Sample(args=(q, k, v, mask))
    none = Fill(shape=(3, 5), dtype=dt.bool_, values=(True,) * 5 + (False,) * 5)
    yield Sample(args=(q, k, v, none), smooth=False, note="a query without keys")
    yield Sample(args=(q, Fill(shape=(2, 5, 3)), v), raises=ShapeError, note="widths that differ")
    yield Sample(args=(q, k, v, Fill(shape=(4, 5))), raises=ShapeError, note="a mask that does not fit")
    yield Sample(args=(q, k, v, Fill(shape=(3, 5), dtype=dt.int64)), raises=DtypeError)


def _attention_gradients() -> Iterator[Sample]:
    def fills(*shapes: Shape) -> tuple[Fill, ...]:
        return tuple(Fill(shape=shape, low=-1, high=1) for shape in shapes)

    for out, shapes, kwargs in (
        ((3, 2), ((3, 4), (5, 4), (5, 2)), {"scale": 0.5}),
        ((2, 3, 4), ((2, 3, 4), (2, 3, 4), (2, 3, 4)), {"is_causal": True}),
        ((2, 2, 3, 2), ((2, 1, 3, 4), (1, 5, 4), (2, 2, 5, 2)), {"scale": 0.25}),
        ((1, 4, 3, 3), ((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3)), {"enable_gqa": True}),
        ((2, 2, 9, 8), ((2, 2, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8)), {"is_causal": True, "scale": 0.35}),
        ((0, 3, 4), ((0, 3, 4), (0, 5, 4), (0, 5, 4)), {}),
    ):  # fmt: skip
        yield Sample(args=fills(out, out, *shapes), kwargs=kwargs)
    operands = fills((2, 3, 2), (2, 3, 2), (2, 3, 4), (2, 5, 4), (2, 5, 2))
    yield Sample(args=(*operands, Fill(shape=(3, 5), dtype=dt.bool_, values=(True, True, False))))
    yield Sample(args=fills((3, 4), (3, 2), (3, 4), (5, 4), (5, 2)), raises=ShapeError)


def _flex(causal: bool, scores: DType = dt.float32, **named: object) -> dict[str, object]:
    """Return the attributes of a call of ``flex_attention``: of plain attention, or a causal one."""
    from ...nn.attention.score_capture import capture

    mask = (lambda b, h, q_idx, kv_idx: q_idx >= kv_idx) if causal else None
    program = capture(None, mask, scores, Device("cpu", 0)).program
    return {"program": program, "scale": 0.5, **named}


def _flex_attention() -> Iterator[Sample]:
    for (shapes, causal, named), (scores, kinds) in product(_FLEX, _FLEX_SCORES.items()):
        blocks = (
            () if "block_size" not in named else (Fill(shape=(1, 1, 2, 3), dtype=dt.uint8, values=_BLOCKS),)
        )
        fills = [Fill(shape=shape, low=-1, high=1) for shape in shapes]
        yield Sample(args=(*fills, *blocks), kwargs=_flex(causal, scores, **named), dtypes=kinds)
    bad = tuple(Fill(shape=shape) for shape in ((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)))
    yield Sample(args=bad, kwargs=_flex(False), raises=ShapeError, note="widths that differ")
    flat = tuple(Fill(shape=(3, 4)) for _ in range(3))
    yield Sample(args=flat, kwargs=_flex(False), raises=ShapeError, note="no heads")


def _flex_attention_gradients() -> Iterator[Sample]:
    for (shapes, causal, named), (scores, kinds) in product(_FLEX, _FLEX_SCORES.items()):
        blocks = (
            () if "block_size" not in named else (Fill(shape=(1, 1, 2, 3), dtype=dt.uint8, values=_BLOCKS),)
        )
        out, lse = (*shapes[0][:3], shapes[2][3]), shapes[0][:3]
        fills = [Fill(shape=shape, low=-1, high=1) for shape in (out, lse, out, lse, *shapes)]
        # Logarithms as large as those of a dozen keys, so that shares are ones.
        fills[3] = Fill(shape=lse, low=2, high=3)
        yield Sample(args=(*fills, *blocks), kwargs=_flex(causal, scores, **named), dtypes=kinds)
    wrong = tuple(Fill(shape=(1, 1, 3, 4)) for _ in range(7))
    yield Sample(args=wrong, kwargs=_flex(False), raises=ShapeError)


def _flex_captured_gradients() -> Iterator[Sample]:
    """Of a bias of each head and key, which is added to the scores."""
    from ...decompose.tracer import OPS
    from ...nn.attention.score_capture import capture

    queries, lines = (3, 2, 3, 4), (3, 2, 3)
    fills = [Fill(shape=s, low=-1, high=1) for s in (queries, lines, queries, lines, queries)]
    fills[3] = Fill(shape=lines, low=2, high=3)
    keys = [Fill(shape=s, low=-1, high=1) for s in ((3, 2, 4, 4), (3, 2, 4, 4))]
    for scores, kinds in _FLEX_SCORES.items():
        bias = OPS.wrap(Node(op="input", attrs={"index": 0}, spec=Spec((2, 4), scores))).requires_grad_()
        program = capture(lambda s, b, h, i, j, bias=bias: s + bias[h, j], None, scores, OPS.device).program
        learned = Fill(shape=(2, 4), dtype=scores, low=-1, high=1)
        named = {"program": program, "scale": 0.5}
        yield Sample(args=(*fills, *keys, learned), kwargs=named, dtypes=kinds)
    wrong = tuple(Fill(shape=(1, 1, 3, 4)) for _ in range(7))
    yield Sample(args=(*wrong, learned), kwargs=named, raises=ShapeError)


_FLEX: Final[tuple[tuple[tuple[Shape, Shape, Shape], bool, dict[str, object]], ...]] = (
    (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2)), False, {}),
    (((2, 4, 5, 3), (2, 2, 5, 3), (2, 2, 5, 3)), True, {"enable_gqa": True}),
    (((2, 2, 7, 4), (1, 2, 9, 4), (1, 2, 9, 5)), True, {"block_size": (4, 4)}),
    (((1, 1, 1, 20), (1, 1, 140, 20), (1, 1, 140, 4)), False, {}),
    (((0, 1, 2, 3), (0, 1, 4, 3), (0, 1, 4, 3)), False, {}),
)
_BLOCKS: Final = (1, 0, 2, 2, 1, 1)
_FLEX_SCORES: Final = {
    dt.float32: tuple(d for d in dt.FLOATING if d is not dt.float64), dt.float64: (dt.float64,),
}  # fmt: skip
"""Scores have the dtype of what products of a dtype add up in, and a program of their own."""

SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "matmul": _matmul, "affine": _affine, "scaled_matmul": _scaled,
    "standardize": _standardize, "to_unit_rms": _standardize,
    "scaled_dot_product_attention": _attention, "attention_gradients": _attention_gradients,
    "flex_attention": _flex_attention, "flex_attention_gradients": _flex_attention_gradients,
    "flex_attention_captured_gradients": _flex_captured_gradients,
}  # fmt: skip
