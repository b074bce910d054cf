"""``tensorbus plan``: memory and communication of a training step of one rank of many, none of which is here.

The step is not calculated: it runs, on tensors without elements and with ranks that are not there. What is
printed is what the values that it made would take, and the collectives that it called.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from .. import distributed as dist
from .. import nn, optim, plugins
from ..devices.device import device as on_device
from ..dtypes.definition import DType, dtype
from ..errors import ArgumentError, PluginError, suggest
from ..kernels.meta_memory import MetaMemory, count_memory
from ..tensor.tensor import Tensor
from .plan_models import PRESETS, build

DIMENSIONS: Final = {
    "ddp": "copies by replicate; with dp of fully_shard's parts",
    "dp": "parts by fully_shard",
    "tp": "layers split by parallelize_module",
}
"""What a dimension of the mesh does, by its name, from the outermost."""
OPTIMIZERS: Final[dict[str, Callable[[Any], Any]]] = {
    "adamw": optim.AdamW, "sgd": optim.SGD, "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9)
}  # fmt: skip
Build = Callable[[], tuple[nn.Module, Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on the rank. ``activations`` are those that ``forward`` leaves for the derivatives."""

    parameters: int
    gradients: int
    optimizer: int
    other: int
    activations: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The calls of one collective along one dimension in a step: bytes of its tensors, and sent ones."""

    dimension: str
    ranks: int
    operation: str
    calls: int
    bytes: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The memory and time of a step of ``rank``; ``elements`` are the whole model's parameters."""

    mesh: dict[str, int]
    rank: int
    elements: int
    memory: Memory
    traffic: tuple[Traffic, ...]


def mesh_of(text: str) -> dict[str, int]:
    """Return the lengths of a mesh's dimensions by name, given ``"dp=64,tp=8"``.

    Raises ``ArgumentError`` for a dimension that nobody knows, stands twice or in another order.
    """
    mesh: dict[str, int] = {}
    for part in text.split(","):
        name, _, length = part.strip().partition("=")
        if name not in DIMENSIONS or name in mesh or not length.isdecimal() or int(length) < 1:
            known = "; ".join(f"{name}: {what}" for name, what in DIMENSIONS.items())
            raise ArgumentError(
                f"plan: --mesh is like dp=64,tp=8, each dimension once; {known}. Got {text!r}."
            )
        mesh[name] = int(length)
    if [*mesh] != [name for name in DIMENSIONS if name in mesh]:
        raise ArgumentError(f"plan: dimensions stand in the order {', '.join(DIMENSIONS)}; got {text!r}.")
    return mesh


def builder(model: str, batch: int, checkpoint: bool, sizes: Mapping[str, int]) -> Build:
    """Return what builds a preset in these sizes, or the function ``module:function``.

    Raises ``ArgumentError`` for what is neither, and for sizes of a model that has its own.
    """
    if model in PRESETS:
        return partial(build, model, batch, checkpoint, sizes)
    module, colon, attribute = model.partition(":")
    if not colon:
        near = suggest(model, PRESETS)
        raise ArgumentError(f"plan: --model is {', '.join(PRESETS)} or module:function, got {model!r}.{near}")
    if sizes or checkpoint or batch != 1:
        raise ArgumentError(f"plan: sizes are those of {', '.join(PRESETS)}; {model!r} has its own.")
    sys.path.insert(0, os.getcwd())  # as python -m does
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"plan: {model!r} is no function: {error}.") from None
    finally:
        sys.path.remove(os.getcwd())
    return _checked(model, function)


def _checked(name: str, function: Callable[[], Any]) -> Build:
    def build() -> tuple[nn.Module, Sequence[Any]]:
        result = function()
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], nn.Module)
                and isinstance(result[1], tuple | list)):  # fmt: skip
            raise ArgumentError(
                f"plan: {name!r} must return a module and a tuple of the arguments of its forward, got"
                f" {type(result).__name__}."
            )
        return result

    return build


def dtype_of(name: str) -> DType | None:
    """Return the dtype of that name; None for "". Raises ``DtypeError`` for what is none."""
    return dtype(name) if name else None


def plan(
    build_model: Build, mesh: Mapping[str, int], *, rank: int = 0, optimizer: str = "adamw",
    compute_dtype: DType | None = None, reduce_dtype: DType | None = None,
    progress: Callable[[str], Any] = lambda what: nullcontext(),
) -> TrainingPlan:  # fmt: skip
    """Run two training steps of ``rank`` on a mesh of ranks that are not there, and return the second's plan.

    ``build_model`` is called on the device ``"meta"``. A module may have ``parallel_plan``, styles for
    ``parallelize_module``, which a dimension ``tp`` needs. ``fully_shard`` divides the modules of each
    ``ModuleList`` and then the rest; ``compute_dtype`` and ``reduce_dtype`` are its mixed precision.
    """
    size = math.prod(mesh.values())
    if "fake" not in plugins.store_schemes():
        raise PluginError("plan: ranks that are not there come with a package: pip install tensorbus-fake.")
    if not 0 <= rank < size:
        raise ArgumentError(f"plan: --rank must be 0 to {size - 1}, got {rank}.")
    if optimizer not in OPTIMIZERS:
        raise ArgumentError(f"plan: --optimizer is {', '.join(OPTIMIZERS)}, got {optimizer!r}.")
    if (compute_dtype or reduce_dtype) and "dp" not in mesh:
        raise ArgumentError("plan: mixed precision is fully_shard's: give --mesh a dimension dp.")
    store: Any = dist.open_store("fake://")
    dist.init(rank=rank, world_size=size, store=store)
    try:
        with count_memory() as memory:
            grid = dist.init_device_mesh(None, tuple(mesh.values()), mesh_dim_names=tuple(mesh))
            with progress("Building the model"), on_device("meta"):
                model, arguments = build_model()
            elements = sum({id(p): p.size for p in model.parameters()}.values())
            policy = dist.MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=reduce_dtype)
            with progress("Dividing the model"):
                model = _divided(model, grid, policy)
            update = OPTIMIZERS[optimizer](model.parameters())
            with progress("A first step, which makes the optimizer's state"):
                _step(model, arguments, update, "tp" in mesh)
            first = len(store.calls)
            with progress("A step"):
                figures = _measured(model, arguments, update, memory, "tp" in mesh)
        names = {group.ranks: name for group, name in zip(grid.groups, mesh, strict=True)}
        return TrainingPlan(
            mesh=dict(mesh), rank=rank, elements=elements, memory=figures,
            traffic=_summed(store.calls[first:], names),
        )  # fmt: skip
    finally:
        dist.shutdown()


def _divided(model: nn.Module, mesh: dist.DeviceMesh, policy: dist.MixedPrecisionPolicy) -> nn.Module:
    names = mesh.mesh_dim_names or ()
    if "tp" in names:
        styles = getattr(model, "parallel_plan", None)
        if styles is None:
            raise ArgumentError(
                f"plan: {type(model).__name__} has no attribute parallel_plan, the styles that"
                f" parallelize_module takes, which a dimension tp needs."
            )
        heads, ranks = getattr(model, "kv_heads", 0), mesh["tp"].size()
        if heads % ranks:
            raise ArgumentError(
                f"plan: tp={ranks} must divide the {heads} heads of keys and values: a rank has whole ones."
            )
        model = dist.parallelize_module(model, mesh["tp"], styles)
    if "dp" in names:
        data = mesh["ddp", "dp"] if "ddp" in names else mesh["dp"]
        blocks = [block for each in model.modules() if isinstance(each, nn.ModuleList) for block in each]
        for module in (*blocks, model):
            dist.fully_shard(module, data, mp_policy=policy)
    elif "ddp" in names:
        model = dist.replicate(model, mesh["ddp"])
    return model


def _loss(model: nn.Module, arguments: Sequence[Any]) -> Tensor:
    loss: Tensor = model(*arguments)
    return loss if loss.ndim == 0 else loss.sum()


def _step(model: nn.Module, arguments: Sequence[Any], update: Any, split: bool) -> None:
    with dist.loss_parallel() if split else nullcontext():
        _loss(model, arguments).backward()
    update.step()
    update.zero_grad()


def _measured(
    model: nn.Module, arguments: Sequence[Any], update: Any, memory: MetaMemory, split: bool
) -> Memory:
    """Run a step, and look at what is alive between its parts."""
    before = memory.allocated
    memory.reset_peak()
    with dist.loss_parallel() if split else nullcontext():
        loss = _loss(model, arguments)
        activations = memory.allocated - before
        loss.backward()
    del loss
    parameters = [*{id(p): p for p in model.parameters()}.values()]
    gradients = _bytes(p.grad for p in parameters if p.grad is not None)
    update.step()
    states = _bytes(v for p in parameters for v in update.state[p].values())
    return Memory(
        parameters=_bytes(parameters), gradients=gradients, optimizer=states,
        other=before - _bytes(parameters) - states, activations=activations, peak=memory.peak,
    )  # fmt: skip


def _bytes(values: Iterable[Any]) -> int:
    tensors = [x.to_local() if isinstance(x, dist.DTensor) else x for x in values]
    return sum(x.nbytes for x in tensors if isinstance(x, Tensor) and x.device.type == "meta")


def _summed(calls: Iterable[Any], names: Mapping[tuple[int, ...], str]) -> tuple[Traffic, ...]:
    """Add the calls of a step up by dimension and operation."""
    sums: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for call in calls:
        dimension = names.get(call.group, "all")
        total = sums[dimension, len(call.group), call.operation]
        for place, amount in enumerate((1, call.bytes, call.sent)):
            total[place] += amount
    return tuple(
        Traffic(dimension=dimension, ranks=ranks, operation=operation, calls=n, bytes=size, sent=sent)
        for (dimension, ranks, operation), (n, size, sent) in sorted(sums.items())
    )


def as_dict(result: TrainingPlan) -> dict[str, Any]:
    """Return a plan as JSON has it."""
    return asdict(result)


def render(result: TrainingPlan, console: Console) -> None:
    """Print a plan as two tables, and what they leave out."""
    mesh = ", ".join(f"{name}={length}" for name, length in result.mesh.items())
    ranks = math.prod(result.mesh.values())
    console.print(f"{result.elements:,} parameters; rank {result.rank} of {ranks} ({mesh})")
    memory = Table("memory of the rank", show_edge=False)
    memory.add_column("", justify="right")
    rows = {
        "parameters": result.memory.parameters, "gradients": result.memory.gradients,
        "optimizer's state": result.memory.optimizer, "buffers and inputs": result.memory.other,
        "activations kept for backward": result.memory.activations,
        "most at once in a step": result.memory.peak,
    }  # fmt: skip
    for name, size in rows.items():
        memory.add_row(name, spelled(size))
    traffic = Table("communication of a step", show_edge=False)
    for name in ("along", "calls", "bytes", "sent"):
        traffic.add_column(name, justify="left" if name == "along" else "right")
    for row in result.traffic:
        along = f"{row.dimension} ({row.ranks})"
        traffic.add_row(row.operation, along, str(row.calls), spelled(row.bytes), spelled(row.sent))
    total = [sum(getattr(row, name) for row in result.traffic) for name in ("calls", "bytes", "sent")]
    traffic.add_row("all", "", str(total[0]), spelled(total[1]), spelled(total[2]))
    console.print(memory, "", traffic, "", sep="\n")
    console.print(
        "Measured by running the step, op by op, on tensors without elements. Not counted: workspaces of"
        " kernels, buffers of what connects the ranks, gaps between blocks of memory. A compiled step keeps"
        " less. Sent: what leaves the rank where it goes the shortest way."
    )


def spelled(size: int) -> str:
    """Return a number of bytes as people read it.

    >>> spelled(3 << 29)
    '1.50 GiB'
    """
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.2f} {units[0]}"
