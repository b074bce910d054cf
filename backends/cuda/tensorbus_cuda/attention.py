"""Attention by cuDNN where its frontend is installed: half precision, one pass over keys and values."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import Call, DeviceError, Graph, StridedArray, pack
from tensorbus.backend_api import dtypes as dt

from .device import runtime

if TYPE_CHECKING:
    from .device import Unit

NAME: Final = "scaled_dot_product_attention"
WIDEST: Final = 128
"""Elements of a head for which every GPU since compute capability 8.0 has a kernel."""
_STEP: Final = 8
_HALF: Final = {dt.float16: "HALF", dt.bfloat16: "BFLOAT16"}


@cache
def is_installed() -> bool:
    """Return whether cuDNN's frontend for Python is there. Nothing is imported."""
    return importlib.util.find_spec("cudnn") is not None


def supports(call: Call) -> bool | str:
    """Return True where cuDNN serves the call, else why not."""
    assert call.shapes is not None
    architecture = int(runtime().units[call.index].architecture)
    return _served(call.dtypes, call.shapes, call.attrs["scale"], architecture)


def served(graph: Graph, index: int) -> bool:
    """Return whether a program has attention, and cuDNN serves all of it."""
    nodes = [node for node in graph if node.op == NAME]
    architecture = int(runtime().units[index].architecture)
    return bool(nodes) and all(
        _served(
            tuple(x.spec.dtype for x in node.inputs), tuple(x.spec.shape for x in node.inputs),
            node.attrs["scale"], architecture,
        ) is True
        for node in nodes
    )  # fmt: skip


def _served(
    dtypes: Sequence[dt.DType], shapes: Sequence[tuple[int, ...]], scale: float, architecture: int
) -> bool | str:
    if not is_installed():
        return "needs cuDNN's frontend (pip install tensorbus-cuda[cudnn])"
    if len(shapes) != 3:
        return "takes no mask of the caller's"
    if any(d not in _HALF for d in dtypes):
        return "takes float16 and bfloat16"
    if architecture < 80:
        return "needs compute capability 8.0"
    q, k, v = shapes
    if any(len(s) != 4 or 0 in s for s in shapes) or not q[0] == k[0] == v[0] or k[1] != v[1] or q[1] % k[1]:
        return "takes operands of (batch, heads, length, width)"
    if any(s[-1] > WIDEST or s[-1] % _STEP for s in shapes) or scale <= 0:
        return f"takes heads of up to {WIDEST} elements, in steps of {_STEP}"
    return True


class Library:
    """cuDNN for one GPU."""

    def __init__(self, unit: Unit) -> None:
        import cudnn

        self.unit = unit
        self.cudnn = cudnn
        self.lock = threading.Lock()
        self.handle = cudnn.create_handle()

    def prepared(
        self, given: Sequence[StridedArray], out: tuple[int, ...], scale: float, *, causal: bool
    ) -> tuple[Any, int, int]:
        """Return a graph of cuDNN's, the number of its result, and how much memory it works in."""
        cudnn = self.cudnn
        kind = getattr(cudnn.data_type, _HALF[given[0].dtype])
        wide = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=self.handle
        )
        q, k, v = (
            graph.tensor(dim=list(x.shape), stride=list(x.strides), data_type=kind, uid=number, name=name)
            for number, name, x in zip((1, 2, 3), "qkv", given, strict=True)
        )
        seen: dict[str, Any] = {}
        if causal:
            seen = {
                "diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0,
            }  # fmt: skip
        made, _ = graph.sdpa(q=q, k=k, v=v, attn_scale=scale, generate_stats=False, name="sdpa", **seen)
        packed = StridedArray.contiguous(None, out, given[0].dtype)
        made.set_output(True).set_dim(list(out)).set_stride(list(packed.strides)).set_data_type(kind)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        return graph, made.get_uid(), graph.get_workspace_size()


@cache
def _library(index: int) -> Library:
    return Library(runtime().units[index])


def prepare(call: Call) -> Any:
    """Return what takes query, key and value to a new value."""
    run = _runner(call, packs=True)
    unit, dtype, shape = runtime().units[call.index], call.out_dtype, call.out_shape or ()
    nbytes = StridedArray.contiguous(None, shape, dtype).nbytes

    def eager(q: StridedArray, k: StridedArray, v: StridedArray) -> StridedArray:
        out = unit.pool.allocate(nbytes)
        run((q, k, v), (out,))
        return StridedArray.contiguous(out, shape, dtype)

    return eager


def into(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what writes the result into a block that is given."""
    return _runner(call, packs=False)


def _runner(call: Call, *, packs: bool) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what queues attention into a block; without ``packs`` it refuses operands of other layouts."""
    unit, compiler, index = runtime().units[call.index], runtime().compiler, call.index
    shape, scale, causal = call.out_shape or (), call.attrs["scale"], call.attrs["is_causal"]
    known: dict[Any, tuple[Any, int, int]] = {}
    spaces: dict[tuple[Any, int], Any] = {}

    def run(values: Sequence[Any], blocks: Sequence[Any]) -> bool:
        library, stream = _library(index), unit.stream()
        lies = [x.strides[-1] == 1 and min(x.strides) > 0 for x in values]
        if not packs and not all(lies):
            return False
        given = [x if well else pack(compiler, x, index) for x, well in zip(values, lies, strict=True)]
        key = tuple(x.strides for x in given)
        with unit.current(), library.lock:
            try:
                if key not in known:
                    known[key] = library.prepared(given, shape, scale, causal=causal)
                graph, out, room = known[key]
                space = spaces.get((key, stream.ptr))
                if space is None:
                    space = spaces[key, stream.ptr] = unit.pool.allocate(room)
                library.cudnn.set_stream(handle=library.handle, stream=stream.ptr)
                places = {n: x.buffer.ptr + x.offset * x.dtype.itemsize for n, x in enumerate(given, 1)}
                graph.execute({**places, out: blocks[0].ptr}, space.ptr, handle=library.handle)
            except Exception as error:  # the frontend's own classes, and RuntimeError
                raise DeviceError(f"{unit.name}: {NAME} by cuDNN: {type(error).__name__}: {error}") from error
        for block in (*(x.buffer for x in given), blocks[0]):
            if block.stream is not stream:
                block.used_by(stream)
        return True

    return run
