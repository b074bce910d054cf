"""Calls of eager kernels in the program of a plan: prepared once for each size, equal ones together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..dtypes.definition import float32
from ..errors import DeviceError
from ..kernels.from_dialect import pack
from ..kernels.size_function import SizeFunction
from ..lowering.ir.builder import RuntimeArg
from ..lowering.ir.kernel_task import LibraryCall
from ..lowering.ir.layout import Layout, Shape
from ..ops.definition import Spec
from ..tracing.sym_int import is_open
from .library_call import into_kernel, library_call

Place = tuple[Shape, Shape, int]
"""Shape, strides and offset."""


class SizedCall:
    """A call for one set of sizes. What makes its results itself is prepared where no kernel fills buffers.

    ``places``: its results lie where it is told.
    """

    __slots__ = ("_device", "_kernel", "call", "into", "places")

    def __init__(self, call: LibraryCall, device: Device) -> None:
        self.call, self._device = call, device
        self.into = into_kernel(call, device)
        self.places = bool(call.row_stride or call.layouts or call.side_size)
        self._kernel = library_call(call, device) if self.into is None else None

    @property
    def kernel(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The kernel that makes the results itself."""
        if self._kernel is None:
            self._kernel = library_call(self.call, self._device)
        return self._kernel


class CallTemplate:
    """A call of a program whose lengths are symbols."""

    def __init__(self, call: LibraryCall, compiler: Any, device: Device) -> None:
        self._call, self._compiler, self._device = call, compiler, device
        self._outputs = call.outputs if call.side_output is None else (*call.outputs, call.side_output)
        self._dtypes = [spec.dtype for spec in call.specs]
        self._slots = [x.slot if isinstance(x, Layout) else -1 - x.operand for x in call.inputs]

    def entry(self, function: SizeFunction, makers: dict[Any, Callable[..., SizedCall | None]]) -> str:
        """Return the expression of what ``run`` needs for a size; equal calls share what is prepared."""
        call = self._call
        places = tuple(
            (x.shape, x.strides, x.offset) if isinstance(x, Layout) else ((), (), 0) for x in call.inputs
        )
        lengths = (
            dict(call.attrs), tuple(s.shape for s in call.specs), tuple(s.shape for s in call.out_specs),
            call.row_stride, tuple((x.shape, x.strides, x.offset) for x in call.layouts), call.side_size,
        )  # fmt: skip
        dtypes = tuple(s.dtype for s in (*call.specs, *call.out_specs))
        numbers = tuple(isinstance(x, RuntimeArg) for x in call.inputs)
        sides = call.side_output is None, call.side_input is None
        maker = makers.setdefault((call.op, dtypes, numbers, sides), self._at)
        if is_open([*lengths]):
            name = function.named(f"{function.constant(maker)}{function.text(lengths)}")
            function.needs(name)
        else:
            sized = maker(*lengths)
            name = function.constant(sized)
            if sized is None:
                function.needs(name)
        return f"({name}, {function.text(places)})"

    def _at(
        self, attrs: Mapping[str, Any], shapes: Sequence[Shape], out_shapes: Sequence[Shape], row_stride: int,
        layouts: Sequence[Place], side_size: int,
    ) -> SizedCall | None:  # fmt: skip
        """Return the call for these lengths; None where no kernel places the results as the program wants."""
        call = self._call
        sized = SizedCall(
            LibraryCall(
                op=call.op, attrs=attrs, inputs=call.inputs, outputs=call.outputs, row_stride=row_stride,
                specs=tuple([Spec(n, s.dtype) for n, s in zip(shapes, call.specs, strict=True)]),
                out_specs=tuple([Spec(n, s.dtype) for n, s in zip(out_shapes, call.out_specs, strict=True)]),
                layouts=tuple([Layout(0, *place) for place in layouts]),
                side_output=call.side_output, side_input=call.side_input, side_size=side_size,
            ),
            self._device,
        )  # fmt: skip
        return None if sized.places and sized.into is None else sized

    def run(self, values: Sequence[Any], buffers: list[Any], memory: Any, size: Any) -> None:
        """Run the call for a size, on the values, the buffers by slot and the memory of the run."""
        call, (sized, places) = self._call, size
        arguments = [
            StridedArray(buffers[slot], shape, strides, offset, dtype) if slot >= 0 else values[-1 - slot]
            for slot, dtype, (shape, strides, offset) in zip(self._slots, self._dtypes, places, strict=True)
        ]
        taken = []
        if call.side_input is not None:
            taken = [StridedArray(buffers[call.side_input], (sized.call.side_size,), (1,), 0, float32)]
        if sized.into is not None:
            for slot in self._outputs:
                if buffers[slot] is None:
                    buffers[slot] = memory.of(slot)
            into = [buffers[s] for s in self._outputs]
            if sized.into([*arguments, *taken], into):
                return
            if sized.places:
                index = self._device.index
                whole = [*[pack(self._compiler, x, index) for x in arguments], *taken]
                if not sized.into(whole, into):
                    raise DeviceError(
                        f"{call.op}: the device's kernel does not place its results where they are wanted."
                    )
                return
        self._make(sized, arguments, buffers, memory)

    def _make(self, sized: SizedCall, arguments: list[Any], buffers: list[Any], memory: Any) -> None:
        """Run what makes its results itself; one of them may lie where an operand does."""
        results = [pack(self._compiler, out, self._device.index).buffer for out in sized.kernel(arguments)]
        memory.let_go(results)
        for slot, buffer in zip(self._outputs, results, strict=True):
            buffers[slot] = buffer
