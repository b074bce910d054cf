"""MLX's own functions as kernels: products, convolutions, attention, normalization.

They take any layout, and are queued in the thread's current stream. What MLX means otherwise than tensorbus
does, and what it lacks, ``supports`` refuses: those calls are decomposed, or generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import mlx.core as mx
from tensorbus.backend_api import Call, Kernel, KernelTable, StridedArray
from tensorbus.backend_api import dtypes as dt

from .device import elements, runtime

KINDS: Final = {dt.float16: mx.float16, dt.bfloat16: mx.bfloat16, dt.float32: mx.float32}
"""The dtypes that MLX computes in as exactly as the generated kernels do."""
ATTENTION: Final = "scaled_dot_product_attention"
Function = Callable[..., Any]


def kernels(generated: KernelTable) -> KernelTable:
    """Return the kernels by MLX. The ``generated`` ones do what MLX has no products and norms for."""
    return {
        "matmul": _instead(generated["matmul"], "matmul", lambda call: mx.matmul),
        "standardize": _instead(generated["standardize"], "layer_norm", partial(_normal, mx.fast.layer_norm)),
        "to_unit_rms": _instead(generated["to_unit_rms"], "rms_norm", partial(_normal, mx.fast.rms_norm)),
        "conv": Kernel(name="mlx", prepare=lambda c: _queued(c, _conv(c)), supports=_convolves),
        "conv_transpose": Kernel(
            name="mlx", prepare=lambda c: _queued(c, _conv_transpose(c)), supports=_convolves
        ),
        ATTENTION: Kernel(name="mlx", prepare=lambda c: _queued(c, _attention(c)), supports=_attends),
    }


def _instead(generated: Any, name: str, function: Callable[[Call], Function]) -> Kernel:
    """Return a kernel by MLX where there are elements of a dtype that it computes in, else as generated."""

    def prepare(call: Call) -> Any:
        return _queued(call, function(call)) if _known(call) is True else generated.prepare(call)

    return Kernel(name=name, prepare=prepare)


def _known(call: Call) -> bool | str:
    if any(d not in KINDS for d in call.dtypes):
        return f"takes {', '.join(d.name for d in KINDS)}"
    if any(0 in shape for shape in (*(call.shapes or ()), call.out_shape or ())):
        return "takes operands with elements"
    return True


def _queued(call: Call, function: Function) -> Function:
    """Return the kernel that queues a function of MLX arrays."""
    owner, shape, dtype = runtime(), call.out_shape or (), call.out_dtype
    kinds = [KINDS[d] for d in call.dtypes]

    def run(*values: StridedArray) -> StridedArray:
        stream = owner.stream
        operands = [elements(owner, v, kind) for v, kind in zip(values, kinds, strict=True)]
        block = owner.pool.of(function(*operands, stream=stream), stream)
        owner.start([block])
        return StridedArray.contiguous(block, shape, dtype)

    return run


def _normal(norm: Function, call: Call) -> Function:
    assert call.shapes is not None
    (shape,), rank, eps = call.shapes, call.attrs["rank"], call.attrs["eps"]
    rows = (-1, prod(shape[len(shape) - rank :]))
    more = () if norm is mx.fast.rms_norm else (None,)  # a bias

    def run(x: Any, stream: Any) -> Any:
        return norm(mx.reshape(x, rows, stream=stream), None, *more, eps, stream=stream)

    return run


def _convolves(call: Call) -> bool | str:
    assert call.shapes is not None
    rank = len(call.shapes[1]) - 2
    if rank > 3 or (rank == 3 and call.attrs["groups"] > 1):
        return "takes up to 3 spatial axes, and groups with 2"
    if call.op == "conv_transpose" and min(_margins(call)) < 0:
        return "takes no padding that is wider than the kernel's reach"
    return _known(call)


def _margins(call: Call) -> Sequence[int]:
    """Return how far the windows of a transposed convolution begin before the input."""
    assert call.shapes is not None
    each = zip(call.attrs["dilation"], call.shapes[1][2:], call.attrs["padding"], strict=True)
    return [d * (k - 1) - p for d, k, p in each]


def _conv(call: Call) -> Function:
    attrs = call.attrs
    function = partial(
        mx.conv_general, stride=attrs["stride"], padding=attrs["padding"], kernel_dilation=attrs["dilation"],
        groups=attrs["groups"],
    )  # fmt: skip

    def run(x: Any, weight: Any, stream: Any) -> Any:
        return _channels_last(function, x, mx.moveaxis(weight, 1, -1, stream=stream), stream)

    return run


def _conv_transpose(call: Call) -> Function:
    assert call.shapes is not None
    attrs, groups = call.attrs, call.attrs["groups"]
    inputs, outputs, *kernel = call.shapes[1]
    low = _margins(call)
    high = [n + more for n, more in zip(low, attrs["output_padding"], strict=True)]
    function = partial(
        mx.conv_general, padding=(low, high), kernel_dilation=attrs["dilation"],
        input_dilation=attrs["stride"], groups=groups, flip=True,
    )  # fmt: skip

    def run(x: Any, weight: Any, stream: Any) -> Any:
        apart = mx.reshape(weight, (groups, inputs // groups, outputs, *kernel), stream=stream)
        last = mx.moveaxis(apart, 1, -1, stream=stream)
        whole = mx.reshape(last, (groups * outputs, *kernel, inputs // groups), stream=stream)
        return _channels_last(function, x, whole, stream)

    return run


def _channels_last(function: Function, x: Any, weight: Any, stream: Any) -> Any:
    """Return a convolution by MLX, which has channels last."""
    out = function(mx.moveaxis(x, 1, -1, stream=stream), weight, stream=stream)
    return mx.moveaxis(out, -1, 1, stream=stream)


def _attends(call: Call) -> bool | str:
    if len(call.dtypes) != 3:
        return "takes no mask of the caller's: rows without any key would be NaN"
    assert call.shapes is not None
    q, k, v = call.shapes
    if any(len(s) != 4 for s in call.shapes) or not q[0] == k[0] == v[0] or k[1] != v[1] or q[1] % k[1]:
        return "takes operands of (batch, heads, length, width)"
    if call.attrs["is_causal"] and q[2] != k[2]:
        return "takes causal attention of equal lengths"
    return _known(call)


def _attention(call: Call) -> Function:
    return partial(
        mx.fast.scaled_dot_product_attention, scale=call.attrs["scale"],
        mask="causal" if call.attrs["is_causal"] else None,
    )  # fmt: skip
