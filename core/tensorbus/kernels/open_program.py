"""A program of an eager call whose lengths and strides are symbols, with its launches as templates.

``open_shapes`` makes one for many sizes. A new size then takes one function of the symbols, which computes
the numbers of all launches, and what holds them: nothing is lowered, rendered or prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..lowering.codegen.render import render
from ..lowering.ir.builder import RuntimeArg
from ..lowering.ir.kernel_task import ERROR_SLOT, KernelLaunch
from ..lowering.ir.verify import verify
from ..lowering.program.program import Program, sized, steps_of
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import SymInt, is_open, substitution
from .generated_program import Compiler, GeneratedProgram, common_buffer, reader_of
from .size_function import SizeFunction


class OpenProgram:
    """A program with symbols, bound to a unit of a device: ``at`` returns what runs values of one size.

    A device that queues several launches by one call does so for each size as for a program made for it
    alone; one without templates, or whose kernels begin at a place that depends on a size, prepares launches.
    """

    def __init__(
        self, compiler: Compiler, op: str, graph: Graph, program: Program, env: PlanEnv, index: int
    ) -> None:
        self.compiler, self.op, self.graph, self.program, self.index = compiler, op, graph, program, index
        dialect = compiler.dialect(index)
        self.sources = {id(kernel): render(kernel, dialect) for kernel in program.kernels()}
        for kernel in program.kernels():
            verify(kernel)
        self._symbols = [*env.symbols]
        steps = [step for item in program.steps for step in steps_of(item)]
        at_once = len(steps) > 1 and hasattr(compiler, "sequence")
        fixed = not any(_begins_at_an_open_place(x) for step in steps for x in step.launch.values)
        self.template: _Template | None = None
        if hasattr(compiler, "template") and steps and fixed and not at_once:
            self.template = _Template(self, steps, self._symbols)
        else:
            self._substitute = substitution(env.symbols, lambda close: sized(program, close))

    def at(self, sizes: Sequence[int], values: Sequence[Any]) -> SizedProgram | GeneratedProgram | None:
        """Return the program for values of these sizes, in the order of the symbols; None where none fits."""
        if self.template is not None:
            return self.template.at(sizes)
        program = sized(self.program, self._substitute(dict(zip(self._symbols, sizes, strict=True))))
        code = program, self.sources
        return GeneratedProgram(self.compiler, self.op, self.graph, values, self.index, code=code)


class _Template:
    """The launches of a program as templates, and the function of a size's numbers."""

    def __init__(self, of: OpenProgram, steps: Sequence[KernelLaunch], symbols: Sequence[str]) -> None:
        compiler, program, index = of.compiler, of.program, of.index
        self.compiler, self.index = compiler, index
        self.dtypes = [node.spec.dtype for node in of.graph.outputs]
        function = SizeFunction(symbols)
        seen = {*range(len(of.graph.inputs))}
        self.steps: list[tuple[Any, ...]] = []
        entries: list[str] = []
        for step, frees in zip(steps, _frees(program), strict=True):
            values, late = _read(of, step)
            launch = replace(step.launch, values=values)
            template = compiler.template(of.sources[id(launch.kernel)], launch, index)  # type: ignore[attr-defined]
            for param, value in zip(launch.kernel.params, values, strict=True):
                if type(value) is SymInt:
                    function.fits(value, param.dtype)
            texts = [function.text(tuple(x for x in values if type(x) is SymInt)), function.text(launch.grid)]
            entries.append(f"{function.constant(template)}.at({', '.join(texts)})")
            new = tuple(s for s in dict.fromkeys(step.slots) if s >= 0 and s not in seen)
            seen.update(new)
            common = tuple(dict.fromkeys(s for s in step.slots if s < 0))
            self.steps.append((template.queue, step.slots, late, new, common, frees))
        bytes_of = {slot: size * dtype.itemsize for slot, (size, dtype) in program.sizes.items()}
        self.outputs = [(x.slot, x.late, d) for x, d in zip(program.outputs, self.dtypes, strict=True)]
        self.count = max([*bytes_of, *(x.slot for x in program.outputs), len(of.graph.inputs) - 1]) + 1
        self.over = program.replaceable.get(0)
        numbers = (
            tuple(bytes_of.get(slot, 0) for slot in range(self.count)),
            tuple((x.shape, x.strides, x.offset) for x in program.outputs),
        )
        self._at = function.compiled(
            f"({', '.join(map(function.text, numbers))}, ({''.join(f'{entry}, ' for entry in entries)}))"
        )

    def at(self, sizes: Sequence[int]) -> SizedProgram | None:
        """Return the program for these sizes; None where a parameter has no room for one."""
        numbers = self._at(*sizes)
        return None if numbers is None else SizedProgram(self, *numbers)


class SizedProgram:
    """A program for one size: see ``GeneratedProgram``."""

    __slots__ = ("_launches", "_nbytes", "_outputs", "_template", "run")

    def __init__(
        self, template: _Template, nbytes: Sequence[int], outputs: Sequence[Any], launches: Sequence[Any]
    ) -> None:
        self._template, self._nbytes, self._outputs, self._launches = template, nbytes, outputs, launches
        self.run: Callable[[Sequence[Any]], StridedArray] = self._single() or self._first

    def _single(self) -> Callable[[Sequence[Any]], StridedArray] | None:
        """Return the short way for one launch into one new buffer, which most calls are."""
        template = self._template
        own, late_output, dtype = template.outputs[0]
        queue, slots, late, new, common, _ = template.steps[0]
        nbytes = self._nbytes[own]
        alone = len(template.steps) == len(template.outputs) == 1
        if not alone or new != (own,) or common or late_output is not None or not nbytes:
            return None
        ((shape, strides, offset),), (size,) = self._outputs, self._launches
        allocate, index = template.compiler.allocate, template.index

        def run(values: Sequence[Any]) -> StridedArray:
            buffer = allocate(nbytes, index)
            queue(
                [buffer if s == own else values[s].buffer for s in slots],
                [read(values) for read in late] if late else (), size,
            )  # fmt: skip
            return StridedArray(buffer, shape, strides, offset, dtype)

        return run

    def _first(self, values: Sequence[Any]) -> StridedArray:
        return self.every(values)[0]

    def every(self, values: Sequence[Any]) -> list[StridedArray]:
        """Run all launches; return all results."""
        template, nbytes = self._template, self._nbytes
        compiler, index = template.compiler, template.index
        buffers: list[Any] = [v.buffer if type(v) is StridedArray else None for v in values]
        buffers += [None] * (template.count - len(buffers))
        shared: dict[int, Any] = {}
        for (queue, slots, late, new, common, frees), size in zip(
            template.steps, self._launches, strict=True
        ):
            for slot in new:
                if nbytes[slot]:
                    buffers[slot] = compiler.allocate(nbytes[slot], index)
            for slot in common:
                shared[slot] = common_buffer(compiler, slot, index)
            queue(
                [buffers[s] if s >= 0 else shared[s] for s in slots],
                [read(values) for read in late] if late else (), size,
            )  # fmt: skip
            for slot in frees:
                buffers[slot] = None
        return [
            StridedArray(
                buffers[slot], shape, strides, offset if late is None else offset + values[late].offset, dtype
            )
            for (slot, late, dtype), (shape, strides, offset) in zip(
                template.outputs, self._outputs, strict=True
            )
        ]

    def written(self, values: Sequence[Any]) -> bool:
        """Write the result over the operand that it replaces; return whether that can be done."""
        template = self._template
        over, (own, _, _) = template.over, template.outputs[0]
        queue, slots, late, *_ = template.steps[0]
        if over is None or len(template.steps) != 1 or ERROR_SLOT in slots:
            return False
        buffers = [values[over if s == own else s].buffer for s in slots]
        queue(buffers, [read(values) for read in late] if late else (), self._launches[0])
        return True


def _begins_at_an_open_place(value: Any) -> bool:
    return isinstance(value, RuntimeArg) and is_open(value.plus)


def _frees(program: Program) -> list[tuple[int, ...]]:
    """Return what is needed no more after each launch."""
    every: list[tuple[int, ...]] = []
    for item, frees in zip(program.steps, program.frees, strict=True):
        every += [()] * (len(steps_of(item)) - 1)
        every.append(tuple(frees))
    return every


def _read(
    of: OpenProgram, step: KernelLaunch
) -> tuple[tuple[Any, ...], tuple[Callable[[Sequence[Any]], Any], ...]]:
    """Return a launch's values with the device's numbers of errors, and what reads those that come late."""
    values: list[Any] = []
    late: list[Callable[[Sequence[Any]], Any]] = []
    for value in step.launch.values:
        if isinstance(value, RuntimeArg) and value.what == "code":
            value = of.compiler.error_code(of.op)
        elif isinstance(value, RuntimeArg):
            late.append(reader_of(value, of.graph))
        values.append(value)
    return tuple(values), tuple(late)
