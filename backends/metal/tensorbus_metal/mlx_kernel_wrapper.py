"""A generated kernel as MLX takes it: as the body of a function whose head MLX writes itself.

That function has arrays of bytes for arguments, called ``tb_`` and the buffer's name, and the parameters of
the kernel in one more, ``tb_params``, each in a slot of 16 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorbus.backend_api import INDEX, kernel_parts

if TYPE_CHECKING:
    from tensorbus.backend_api import Dialect, DType, LoopKernel

SLOT = 16
"""Bytes that a parameter has, whatever its dtype."""


def framed(kernel: LoopKernel, language: Dialect) -> tuple[str, str]:
    """Return what stands before MLX's function, and the body of it."""
    helpers, own = kernel_parts(kernel, language)
    body = own.strip().removesuffix("}").partition("{\n")[2]
    lines = _arguments(kernel, language)
    return "\n".join([language.prologue, *helpers.values(), ""]), "\n".join([*lines, body])


def called(source: str, kernel: LoopKernel, language: Dialect) -> tuple[str, str]:
    """Return the same two for a function that somebody wrote, ``kernel`` saying what its arguments are."""
    arguments = [*(b.name for b in kernel.buffers), *(p.name for p in kernel.params)]
    lines = [*_arguments(kernel, language), f"{kernel.name}({', '.join([*arguments, 'tb_at'])});", ""]
    return f"{language.prologue}{source}\n", "\n".join(lines)


def _arguments(kernel: LoopKernel, language: Dialect) -> list[str]:
    """Return the declarations of a kernel's own arguments, out of MLX's."""
    lines = ["const uint3 tb_at = thread_position_in_grid;"]
    for b in kernel.buffers:
        pointer = f"{'' if b.writes else language.constant}device {storage(b.dtype, language)} *"
        lines.append(f"{pointer}{b.name} = ({pointer})tb_{b.name};")
    for k, p in enumerate(kernel.params):
        kind = storage(p.dtype, language)
        lines.append(f"const {kind} {p.name} = *(const device {kind} *)(tb_params + {SLOT * k});")
    return lines


def storage(dtype: DType, language: Dialect) -> str:
    """Return the type of elements of ``dtype`` in memory."""
    return (language.index if dtype is INDEX else language.types[dtype]).storage
