"""The order of a program's steps: what waits for nothing else runs together, what follows a product at once.

Steps that only make results, like the updates of parameters, move to the end, where many are of one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...backend_interface.graph import Graph
from ...dtypes.definition import DType
from ...tracing.sym_int import near
from ..fusion.placement import LoweringInput
from ..heuristics import Heuristics
from ..ir.builder import Launch
from ..ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from ..ir.layout import Layout
from ..ir.loop_ir import LoopKernel
from .collective_order import overlap_collectives
from .early_free import early
from .emit import EmittedProgram
from .inplace_reuse import in_place
from .last_block_epilogue import ended
from .program import Item, ParallelBatch, Program, slots_of, steps_of

Begin = Callable[[Sequence[Launch]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSequence:
    """The steps of a program at one of its stages, with the ``sizes`` of the slots that it makes.

    ``outputs`` says where the program's results lie.
    """

    items: tuple[Item, ...]
    sizes: Mapping[int, tuple[int, DType]]
    outputs: tuple[Layout, ...]

    def launches(self) -> list[Launch]:
        """Return the launches of single steps."""
        return [item.launch for item in self.items if isinstance(item, KernelLaunch)]


def reuse_buffers(emitted: EmittedProgram, asked: LoweringInput) -> StepSequence:
    """Return the steps, which free memory as early as they can and take the place of operands.

    Programs of a device without calls stay as they are.
    """
    steps, outputs = emitted.launches, emitted.outputs
    sizes, items = {**steps.sizes}, [*steps.items]
    if asked.whole:
        output_slots = {x.slot for x in outputs}
        items = in_place(early(items, sizes, output_slots), sizes, output_slots, asked.target.heuristics)
    return StepSequence(items=tuple(items), sizes=sizes, outputs=outputs)


def finish_kernels(steps: StepSequence, asked: LoweringInput) -> StepSequence:
    """Return the steps with kernels as they will be compiled: some joined, some marked, equal ones one."""
    items: Sequence[Item] = steps.items
    replacing = _replacing(steps, asked)
    if not asked.whole:
        return replace(steps, items=tuple(_aliased(items, replacing))) if replacing else steps
    if asked.target.last_task_epilogue:
        items = ended([item for item in steps.items if not isinstance(item, ParallelBatch)])
    return replace(steps, items=tuple(_shared(_aliased(items, replacing))))


def order_steps(steps: StepSequence, asked: LoweringInput) -> StepSequence:
    """Return the steps in the order in which they run, those together that do not wait for each other."""
    if not asked.whole:
        return steps
    sizes = {k: prod(x.spec.shape) for k, x in enumerate(asked.graph.inputs)}
    sizes |= {slot: size for slot, (size, _) in steps.sizes.items()}
    shown = {x.slot for x in steps.outputs}
    nbytes = {s: size * d.itemsize for s, (size, d) in steps.sizes.items() if s not in shown}
    replacing = _replacing(steps, asked)
    items = _batched(steps.items, sizes, nbytes, replacing, asked.target.heuristics)
    return replace(steps, items=tuple(_epilogues(overlap_collectives(items, replacing))))


def make_program(steps: StepSequence, asked: LoweringInput) -> Program:
    """Return the program of steps in their order: what each frees, and which inputs may be replaced."""
    items, outputs, inputs = steps.items, steps.outputs, len(asked.inputs)
    return Program(
        steps=items, sizes=steps.sizes, outputs=outputs, frees=_last_uses(items, outputs, inputs),
        replaceable=_replaceable(items, outputs, asked.graph, asked.replaces, inputs),
        heuristics=asked.target.heuristics,
    )  # fmt: skip


def _replacing(steps: StepSequence, asked: LoweringInput) -> dict[int, int]:
    """Return the slots of outputs, each with the input whose place it takes."""
    return {steps.outputs[k].slot: x for k, x in asked.replaces.items()}


def _aliased(items: Sequence[Item], replacing: Mapping[int, int]) -> list[Item]:
    """Return the steps with those buffers marked that may become one: an output and the input it replaces."""
    known: dict[tuple[int, tuple[int, ...]], LoopKernel] = {}
    result: list[Item] = []
    for item in items:
        if isinstance(item, KernelLaunch):
            one = {x for s in item.slots if replacing.get(s) in item.aligned_reads for x in (s, replacing[s])}
            read, written = slots_of(item)
            one |= (read & written) - {ERROR_SLOT}
            kernel = item.launch.kernel
            places = tuple([k for k, slot in enumerate(item.slots) if slot in one])
            if places:
                kernel_copy = known.get((id(kernel), places))
                if kernel_copy is None:
                    buffers = tuple(
                        replace(b, aliased=True) if k in places else b for k, b in enumerate(kernel.buffers)
                    )
                    kernel_copy = known[id(kernel), places] = replace(kernel, buffers=buffers)
                item = replace(item, launch=replace(item.launch, kernel=kernel_copy))
        result.append(item)
    return result


def _shared(items: Sequence[Item]) -> list[Item]:
    """Return the steps with one object for equal kernels."""
    known: dict[str, LoopKernel] = {}
    kernels: dict[int, LoopKernel] = {}
    result: list[Item] = []
    for item in items:
        if isinstance(item, KernelLaunch):
            own = item.launch.kernel
            kernel = kernels.get(id(own))
            if kernel is None:
                kernel = kernels[id(own)] = known.setdefault(str(own), own)
            if kernel is not own:
                item = replace(item, launch=replace(item.launch, kernel=kernel))
        result.append(item)
    return result


def _work(step: KernelLaunch, sizes: Mapping[int, int]) -> int:
    """Return how many elements a step has to do with: those of its largest buffer."""
    return max(near(prod(step.launch.grid)), *(near(sizes.get(s, 0)) for s in step.slots))


def _batched(
    items: Sequence[Item], sizes: Mapping[int, int], nbytes: Mapping[int, int], replacing: Mapping[int, int],
    limits: Heuristics,
) -> list[Item]:  # fmt: skip
    """Return the items with steps that do not wait for each other put together.

    What fills much memory, of the temporaries ``nbytes``, stays behind what lets as much go.
    What fills the slots of ``replacing`` comes last, behind all other readers of the input whose place it
    takes: steps that may fail should have run before that is written over.
    """
    read = [slots_of(item)[0] for item in items]
    written = [slots_of(item)[1] for item in items]
    users: dict[int, int] = {}
    freed_by: dict[int, int] = {}
    for k in range(len(items)):
        for s in read[k]:
            users[s] = users.get(s, 0) + 1
            freed_by[s] = k
    kernels: dict[int, int] = {}
    for item in items:
        if isinstance(item, KernelLaunch):
            kernels[id(item.launch.kernel)] = kernels.get(id(item.launch.kernel), 0) + 1
    writers_of: dict[int, set[int]] = {}
    for k, slots in enumerate(written):
        for s in slots:
            writers_of.setdefault(s, set()).add(k)
    last: dict[int, None] = {}
    apart: list[int] = []
    for k, item in enumerate(items):
        final = isinstance(item, KernelLaunch) and (
            kernels[id(item.launch.kernel)] > 1 or not written[k].isdisjoint(replacing)
        )
        final = final and not any(users.get(s) for s in written[k])
        if final and all(writers_of[s] == {k} for s in written[k]):
            last[k] = None
        else:
            apart.append(k)
    result: list[list[int]] = []
    made_at: dict[int, int] = {}
    touched: dict[int, int] = {}
    batches: dict[int | None, int] = {}
    frees: list[int] = []
    for k in [*apart, *last]:
        item = items[k]
        after = max(
            [made_at.get(s, -1) for s in read[k] | written[k]] + [touched.get(s, -1) for s in written[k]],
            default=-1,
        )
        after = max([after, *(touched.get(replacing[s], -1) for s in written[k] if s in replacing)])
        place = len(result)
        if isinstance(item, KernelLaunch) and ERROR_SLOT not in written[k]:
            small = _work(item, sizes) <= limits.batch_max_elements
            fills = near(sum([nbytes.get(s, 0) for s in written[k]]))
            for key in (id(item.launch.kernel), None) if small else (id(item.launch.kernel),):
                at = batches.get(key, -1)
                if fills >= limits.lend_min_bytes and max(frees[at:], default=0) >= fills and at >= 0:
                    continue
                if at > after and (k in last or place - at <= limits.batch_max_distance):
                    place = at
                    break
            if place == len(result):
                batches[id(item.launch.kernel)] = place
                if small:
                    batches[None] = place
        if place == len(result):
            result.append([])
            frees.append(0)
        result[place].append(k)
        frees[place] += near(sum([nbytes.get(s, 0) for s in read[k] if freed_by[s] == k]))
        for s in written[k]:
            made_at[s] = max(place, made_at.get(s, -1))
        for s in read[k]:
            touched[s] = max(place, touched.get(s, -1))
    return [_together([items[k] for k in group]) for group in result]


def _together(items: Sequence[Item]) -> Item:
    if len(items) == 1:
        return items[0]
    steps = [step for item in items for step in steps_of(item)]
    first: dict[int, int] = {}
    for n, step in enumerate(steps):
        first.setdefault(id(step.launch.kernel), n)
    return ParallelBatch(steps=tuple(sorted(steps, key=lambda step: first[id(step.launch.kernel)])))


def _epilogues(items: Sequence[Item]) -> list[Item]:
    """Return the items with what reads a product at its own elements right behind it, and marked."""
    result = list(items)
    slots = [slots_of(item) for item in items]
    k = 0
    while k < len(result):
        call = result[k]
        if isinstance(call, LibraryCall) and call.op == "matmul":
            (product,) = call.outputs
            for at in range(k + 1, len(result)):
                step = result[at]
                read, written = slots[at]
                if product not in read:
                    continue
                free = all(not (w & (read | written) or r & written) for r, w in slots[k + 1 : at])
                free = free and ERROR_SLOT not in written
                if (
                    isinstance(step, KernelLaunch)
                    and step.pointwise
                    and product in step.aligned_reads
                    and free
                ):
                    del result[at]
                    result.insert(k + 1, replace(step, epilogue_of=k))
                    slots.insert(k + 1, slots.pop(at))
                break
        k += 1
    return result


def _last_uses(items: Sequence[Item], outputs: Sequence[Layout], inputs: int) -> tuple[tuple[int, ...], ...]:
    last: dict[int, int] = {}
    for k, item in enumerate(items):
        read, written = slots_of(item)
        for slot in sorted(read | written):
            last[slot] = k
    for layout in outputs:
        last.pop(layout.slot, None)
    frees: list[list[int]] = [[] for _ in items]
    for slot, k in last.items():
        if slot >= inputs:
            frees[k].append(slot)
    return tuple(map(tuple, frees))


def _by_slot(item: Item) -> dict[int, list[KernelLaunch]]:
    """Return the launches of an item that have to do with each slot."""
    by_slot: dict[int, list[KernelLaunch]] = {}
    for step in steps_of(item):
        for slot in dict.fromkeys(step.slots):
            by_slot.setdefault(slot, []).append(step)
    return by_slot


def _replaceable(
    items: Sequence[Item], outputs: Sequence[Layout], graph: Graph, replaces: Mapping[int, int], inputs: int
) -> dict[int, int]:
    """Return the outputs that may be written over the inputs whose place they take."""
    replaceable: dict[int, int] = {}
    readers_of: dict[int, list[int]] = {}
    writers_of: dict[int, list[int]] = {}
    for k, item in enumerate(items):
        for slots, users in zip(slots_of(item), (readers_of, writers_of), strict=True):
            for slot in slots:
                users.setdefault(slot, []).append(k)
    shown = Counter(x.slot for x in outputs)
    steps_at: dict[int, dict[int, list[KernelLaunch]]] = {}
    for out, candidates in replaces.items():
        slot, spec = outputs[out].slot, graph.inputs[candidates].spec
        alone = shown[slot] == 1 and not shown[candidates]
        if slot < inputs or not alone or spec != graph.outputs[out].spec or not outputs[out].is_contiguous:
            continue
        writers, readers = writers_of.get(slot, []), readers_of.get(candidates, [])
        if len(writers) != 1 or any(k > writers[0] for k in readers):
            continue
        if writers[0] not in steps_at:
            steps_at[writers[0]] = _by_slot(items[writers[0]])
        here, own = (steps_at[writers[0]].get(s, []) for s in (candidates, slot))
        if writers[0] not in readers or (own and here == own and candidates in own[0].aligned_reads):
            replaceable[out] = candidates
    return replaceable
