"""A program: what a device runs, in order, and the buffers that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from ...backend_interface.compilation import ProgramPart
from ...dtypes.definition import DType
from ...ops.definition import Spec
from ..heuristics import Heuristics
from ..ir.builder import RuntimeArg
from ..ir.kernel_task import COUNTS_SLOT, KernelLaunch, LibraryCall
from ..ir.layout import Layout
from ..ir.loop_ir import INDEX, Apply, LoopKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBatch:
    """Steps that do not depend on each other: one task, or one launch, for all of them.

    Equal kernels stand side by side, and are one object.
    """

    steps: tuple[KernelLaunch, ...]


Item = KernelLaunch | LibraryCall | ParallelBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Steps in order. Slots are buffers: the inputs first, then those in ``sizes`` (elements, dtype).

    ``outputs`` says where each result lies; ``frees`` which slots are needed no more after each step;
    ``replaceable`` which outputs may be written over which inputs, each packed in C order from its beginning.
    ``heuristics`` are those of the target, which plans of its memory ask.
    """

    steps: tuple[Item, ...]
    sizes: Mapping[int, tuple[int, DType]]
    outputs: tuple[Layout, ...]
    frees: tuple[tuple[int, ...], ...]
    replaceable: Mapping[int, int] = field(default_factory=dict)
    heuristics: Heuristics = field(default_factory=Heuristics)

    def kernels(self) -> Iterator[LoopKernel]:
        """Yield each different kernel once, in order of use."""
        seen: set[int] = set()
        for item in self.steps:
            for step in steps_of(item):
                if id(step.launch.kernel) not in seen:
                    seen.add(id(step.launch.kernel))
                    yield step.launch.kernel

    def schedules(self) -> str:
        """Return which schedule wrote each kernel and why, for people to look at."""
        choices = {
            step.launch.kernel.name: step.choice
            for item in self.steps for step in steps_of(item) if step.choice is not None
        }  # fmt: skip
        return "\n".join(f"{name}: {choice}" for name, choice in choices.items())

    def __str__(self) -> str:
        lines = []
        for k, item in enumerate(self.steps):
            lines += [f"{k}: {line}" if n == 0 else f"   {line}" for n, line in enumerate(_item_lines(item))]
            if self.frees[k]:
                lines.append(f"   free {', '.join(f'%{s}' for s in self.frees[k])}")
        lines += [f"%{slot}: {dtype}[{n}]" for slot, (n, dtype) in self.sizes.items()]
        over = {out: f" over %{k}" for out, k in self.replaceable.items()}
        layouts = [f"{_layout_text(x)}{over.get(k, '')}" for k, x in enumerate(self.outputs)]
        return "\n".join([*lines, f"return {', '.join(layouts)}", "", *(f"{k}\n" for k in self.kernels())])


def sized(program: Program, close: Callable[[Any], Any]) -> Program:
    """Return a program whose lengths are symbolic for some sizes: ``close`` gives what holds its lengths.

    Its kernels are the same objects, for any sizes.
    """
    return replace(
        program,
        steps=tuple([_sized_item(item, close) for item in program.steps]),
        sizes={slot: (close(size), dtype) for slot, (size, dtype) in program.sizes.items()},
        outputs=tuple([_sized_operand(x, close) for x in program.outputs]),
    )


def _sized_item(item: Item, close: Callable[[Any], Any]) -> Item:
    if isinstance(item, KernelLaunch):
        return _sized_launch(item, close)
    if isinstance(item, ParallelBatch):
        return replace(item, steps=tuple([_sized_launch(step, close) for step in item.steps]))
    return replace(
        item, attrs=close(dict(item.attrs)), inputs=tuple([_sized_operand(x, close) for x in item.inputs]),
        specs=_sized_specs(item.specs, close), out_specs=_sized_specs(item.out_specs, close),
        row_stride=close(item.row_stride), layouts=tuple([_sized_operand(x, close) for x in item.layouts]),
        side_size=close(item.side_size),
    )  # fmt: skip


def _sized_launch(step: KernelLaunch, close: Callable[[Any], Any]) -> KernelLaunch:
    launch = step.launch
    values = tuple([_sized_operand(x, close) for x in launch.values])
    now = replace(launch, values=values, grid=close(launch.grid), fills=close(launch.fills))
    return replace(step, launch=now)


def _sized_operand(x: Any, close: Callable[[Any], Any]) -> Any:
    if isinstance(x, RuntimeArg):
        return x if type(x.plus) is int else replace(x, plus=close(x.plus))
    if isinstance(x, Layout):
        return Layout(x.slot, close(x.shape), close(x.strides), close(x.offset), x.late)
    return close(x)


def _sized_specs(specs: tuple[Spec, ...], close: Callable[[Any], Any]) -> tuple[Spec, ...]:
    return tuple([Spec(close(x.shape), x.dtype) for x in specs])


def steps_of(item: Item) -> tuple[KernelLaunch, ...]:
    """Return the launches of an item: none of a call."""
    return (
        item.steps if isinstance(item, ParallelBatch) else (item,) if isinstance(item, KernelLaunch) else ()
    )


def slots_of(item: Item) -> tuple[set[int], set[int]]:
    """Return the slots that an item reads, and those that it writes."""
    if isinstance(item, LibraryCall):
        inputs = [x.slot for x in item.inputs if isinstance(x, Layout)]
        filled = [*item.outputs] + ([] if item.side_output is None else [item.side_output])
        return {*inputs} | (set() if item.side_input is None else {item.side_input}), {*filled}
    read: set[int] = set()
    written: set[int] = set()
    for step in steps_of(item):
        for slot, buffer in zip(step.slots, step.launch.kernel.buffers, strict=True):
            (written if buffer.writes else read).add(slot)
    written.discard(COUNTS_SLOT)
    return read, written


def _item_lines(item: Item) -> list[str]:
    if isinstance(item, LibraryCall):
        operands = [_layout_text(x) if isinstance(x, Layout) else f"scalar {x.operand}" for x in item.inputs]
        attrs = [f"{key}={value!r}" for key, value in item.attrs.items()]
        results = ", ".join(f"%{s}: {spec}" for s, spec in zip(item.outputs, item.out_specs, strict=True))
        return [f"{results} = call {item.op}({', '.join(operands + attrs)})"]
    lines = [_step_text(step) for step in steps_of(item)]
    return (
        [f"together {len(lines)}:", *(f"  {line}" for line in lines)]
        if isinstance(item, ParallelBatch)
        else lines
    )


def parts_of(program: Program, sources: Mapping[int, str]) -> list[ProgramPart]:
    """Return the steps for people to look at. ``sources`` has the code of kernels, by their ids."""
    parts: list[ProgramPart] = []
    for item in program.steps:
        steps = steps_of(item)
        if isinstance(item, LibraryCall):
            (line,) = _item_lines(item)
            parts.append(ProgramPart(name=f"{len(parts)} call {item.op}", text=line, ops=(item.op,)))
        for step in steps:
            kernel = step.launch.kernel
            parts.append(
                ProgramPart(
                    name=f"{len(parts)} {kernel.name}", text=_step_text(step), ops=tuple(_ops(kernel)),
                    loops=str(kernel), code=sources.get(id(kernel), ""),
                )
            )  # fmt: skip
    return parts


def _ops(kernel: LoopKernel) -> list[str]:
    """Return the ops that a kernel computes with, those of indices left out."""
    ops: list[str] = []
    stack: list[Any] = list(reversed(kernel.body))
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif is_dataclass(node):
            if isinstance(node, Apply) and node.dtype is not INDEX:
                ops.append(node.op)
            stack.extend(reversed([getattr(node, f.name) for f in fields(node)]))
    return ops


def _step_text(step: KernelLaunch) -> str:
    kernel = step.launch.kernel
    named = [
        f"{b.name}=%{slot}" if slot >= 0 else b.name
        for b, slot in zip(kernel.buffers, step.slots, strict=True)
    ]
    after = f" after call {step.epilogue_of}" if step.epilogue_of is not None else ""
    grid = "x".join(map(str, step.launch.grid)) or "1"
    return f"{kernel.name}({', '.join(named)}) grid {grid} = {prod(step.launch.grid)}{after}"


def _layout_text(x: Layout) -> str:
    plain = x.is_contiguous and not x.offset and x.late is None
    return f"%{x.slot}{list(x.shape)}" + ("" if plain else f" strides {list(x.strides)} from {x.offset}")
