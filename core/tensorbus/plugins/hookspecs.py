"""The hooks that a plugin implements. Each is called once for a device type and hands over a table or object.

A backend writes them in its ``extension.py``, which imports nothing heavy, and imports the marker from
``tensorbus.backend_api``. A hook may leave out parameters that it does not use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    from ..backend_interface.communication import CommunicatorFactory, StoreFactory
    from ..backend_interface.compilation import Lowering
    from ..backend_interface.launching import LauncherFactory
    from ..backend_interface.protocols import KernelTable, Runtime

PROJECT = "tensorbus"
hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime of ``device_type``.

    Called once, when the device type is first asked for, in a thread of its own with a time limit
    (``TENSORBUS_PROBE_TIMEOUT``); then ``runtime.device_count()`` is called as the probe. Import drivers and
    array libraries here. Raise where the device cannot be used: what is raised is shown as the reason.

    A complete ``tensorbus_npu/extension.py``::

        from tensorbus.backend_api import hookimpl

        @hookimpl
        def tensorbus_device(device_type):
            from .device import NpuRuntime
            return NpuRuntime()

        @hookimpl
        def tensorbus_kernels(device_type):
            from .kernels import KERNELS
            return KERNELS

    found through these lines of its ``pyproject.toml``::

        [project.entry-points."tensorbus.devices"]
        npu = "tensorbus_npu.extension"

    and a ``tensorbus_npu/manifest.toml`` in its wheel::

        [plugin]
        name = "npu"
        api = ">=0.1,<1"

        [device]
        type = "npu"
        requires = "an NPU with driver 3.1 or later"
    """


@hookspec
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the kernels for ``device_type``: a mapping from op names to callables or ``Kernel`` objects.

    An op may have a list of ``Kernel`` objects, best first: the first that supports a call serves it.

    Called once, when the device type has been probed. A plugin may also add kernels to the device type of
    another package: its entry point is then in the group ``tensorbus.plugins``, and the ``[kernels]`` table
    of its manifest says ``for = ["npu"]``. A complete such extension, ``npu_fast/extension.py``::

        from tensorbus.backend_api import Kernel, hookimpl

        def short_rows(call):
            return call.shapes[0][-1] <= 1024 or "rows are longer than 1024"

        @hookimpl
        def tensorbus_kernels(device_type):
            from .native import softmax
            kernel = Kernel(name="npu_fast", function=softmax, supports=short_rows, before=("default",))
            return {"softmax": kernel}
    """


@hookspec(firstresult=True)
def tensorbus_lowering(device_type: str) -> Lowering | None:
    """Return what compiles captured programs for ``device_type``.

    Optional, and called once, when the first program is compiled for a device of this type. Without it a
    program runs through the kernels of its ops. For a language of the C family::

        @hookimpl
        def tensorbus_lowering(device_type):
            from tensorbus.backend_api import DialectLowering

            from .compiler import COMPILER
            return DialectLowering(COMPILER)
    """


@hookspec
def tensorbus_ops() -> Iterable[object] | None:
    """Return new ops: objects of ``Op``, or what ``tensorbus.library.custom_op`` made.

    Their names must be free: a second definition is refused.

    Called once. A complete extension, whose entry point is in the group ``tensorbus.plugins``::

        from tensorbus.backend_api import hookimpl

        @hookimpl
        def tensorbus_ops():
            from .ops import OPS
            return OPS
    """


@hookspec(firstresult=True)
def tensorbus_communicator(name: str) -> CommunicatorFactory | None:
    """Return what connects the ranks of a group: an object with ``verdict`` and ``connect``.

    Called once, when a group of ranks first communicates. ``name`` is the entry point's, in the group
    ``tensorbus.communicators``. A complete extension::

        from tensorbus.backend_api import hookimpl

        @hookimpl
        def tensorbus_communicator(name):
            from .communicator import Factory
            return Factory()

    found through these lines of its ``pyproject.toml``::

        [project.entry-points."tensorbus.communicators"]
        sockets = "tensorbus_sockets.extension"
    """


@hookspec(firstresult=True)
def tensorbus_store(scheme: str) -> StoreFactory | None:
    """Return what opens the stores whose URLs begin with ``scheme``: an object with ``open``.

    Called once, when such a store is first opened. ``scheme`` is the entry point's name, in the group
    ``tensorbus.stores``.
    """


@hookspec(firstresult=True)
def tensorbus_launcher(name: str) -> LauncherFactory | None:
    """Return what starts ranks: an object with ``open`` and a table ``options``.

    Called once, when ``tensorbus run --launcher`` names it. ``name`` is the entry point's, in the group
    ``tensorbus.launchers``.
    """
