"""One plugin's extension module: its manifest checked, then imported, its hooks validated and called.

Each extension has a pluggy manager of its own, so that one that fails validation or raises leaves nothing
behind and stops nobody else. No other module touches pluggy's manager.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from ..backend_interface.protocols import Kernel, KernelTable
from ..errors import PluginError, suggest
from .api_version import API_VERSION
from .discovery import EntryPoint, manifest_path
from .plugin_code import run_plugin_code

if TYPE_CHECKING:
    from pluggy import PluginManager

    from ..backend_interface.communication import CommunicatorFactory, StoreFactory
    from ..backend_interface.compilation import Lowering
    from ..backend_interface.launching import LauncherFactory
    from ..backend_interface.protocols import Runtime
    from .manifest import Manifest


IMPORT: Final = "importing it"
PROBE: Final = "its probe"
KERNELS: Final = "handing over its kernels"
OPS: Final = "handing over its ops"
COMMUNICATOR: Final = "handing over its communicator"
STORE: Final = "handing over its store"
LAUNCHER: Final = "handing over its launcher"
REQUESTS: Final = {
    "tensorbus_device": PROBE,
    "tensorbus_kernels": KERNELS,
    "tensorbus_lowering": "handing over its lowering",
    "tensorbus_ops": OPS,
    "tensorbus_communicator": COMMUNICATOR,
    "tensorbus_store": STORE,
    "tensorbus_launcher": LAUNCHER,
}
"""What a plugin is asked for by each hook, as errors and notes name it."""


class Extension:
    """An extension, found by its entry point or handed over as an object. Every step happens at most once.

    ``import_seconds`` is None until the module was imported.
    """

    def __init__(
        self,
        name: str,
        entry_point: EntryPoint | None,
        module: object | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        self.name = name
        self.entry_point = entry_point
        self.import_seconds: float | None = None
        self._module = module
        self._manifest = manifest
        self._hooks: PluginManager | None = None
        self._ops: list[object] | None = None

    @property
    def dist(self) -> str:
        """The distribution that it came from; for an object handed over, what it calls itself."""
        if self.entry_point is not None:
            return self.entry_point.dist
        return str(getattr(self._module, "__name__", type(self._module).__qualname__))

    @property
    def version(self) -> str:
        """The distribution's version; "" for an object handed over."""
        return self.entry_point.version if self.entry_point is not None else ""

    @property
    def owner(self) -> str:
        """Distribution and version, as error messages name it."""
        return f"{self.dist} {self.version}".rstrip()

    @property
    def module_name(self) -> str:
        """The dotted name of the extension module, as far as it has one."""
        return self.entry_point.module if self.entry_point is not None else self.dist

    @property
    def manifest(self) -> Manifest:
        """The manifest, read when first asked for. Raises ``PluginError`` where it is missing or wrong."""
        if self._manifest is None:
            from .manifest import Manifest

            self._manifest = Manifest.read(manifest_path(self.module_name, self.owner), self.owner)
        return self._manifest

    def check(self) -> None:
        """Raise ``PluginError`` where the manifest does not fit this tensorbus. Runs none of its code."""
        manifest = self.manifest
        if not manifest.compatible:
            raise PluginError(
                f"{self.owner} was written for backend API {manifest.api!r}, but this tensorbus has backend"
                f" API {API_VERSION}; none of its code was run. Install a release of {self.dist} for API"
                f" {API_VERSION} (pip install --upgrade {self.dist}), or a tensorbus that has such an API."
            )

    def load(self) -> None:
        """Check, import, and validate the hooks. Raises ``PluginError``, or whatever the import raises."""
        if self._hooks is not None:
            return
        self.check()
        module = self._module
        if module is None:
            started = time.perf_counter()
            module = run_plugin_code(self.owner, IMPORT, self._import)
            self.import_seconds = time.perf_counter() - started
        validate = partial(_validated, module, self.owner, self.module_name)
        self._hooks = run_plugin_code(self.owner, IMPORT, validate)
        self._module = module

    def _import(self) -> object:
        assert self.entry_point is not None, "an extension has an entry point or an object"
        importlib.invalidate_caches()
        module = importlib.import_module(self.entry_point.module)
        target: Any = module
        for attribute in self.entry_point.attributes:
            target = getattr(target, attribute)
        return target

    @property
    def being_imported(self) -> bool:
        """True while the extension's package is half imported, by whoever asked for it first."""
        module = sys.modules.get(self.module_name.partition(".")[0])
        return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))

    def runtime(self, device_type: str) -> Runtime:
        """Call ``tensorbus_device``. Raises ``PluginError`` where the result is not a runtime."""
        runtime: Runtime | None = self._call("tensorbus_device", device_type=device_type)
        if runtime is None:
            raise PluginError(
                f"{self.owner} gives no runtime for {device_type!r}: {self.module_name} must have a function"
                f" `@hookimpl def tensorbus_device(device_type)` that returns one."
            )
        missing = [name for name in _runtime_functions() if not callable(getattr(runtime, name, None))]
        if missing:
            raise PluginError(
                f"the runtime of {device_type!r} from {self.owner}, {type(runtime).__qualname__!r}, lacks"
                f" {', '.join(missing)}(). A runtime has: {', '.join(_runtime_functions())}."
            )
        return runtime

    def kernels(self, device_type: str) -> list[KernelTable]:
        """Call ``tensorbus_kernels``. Raises ``PluginError`` where the result is no table of kernels."""
        tables = self._call("tensorbus_kernels", device_type=device_type)
        for table in tables:
            check_table(table, self.owner)
        return list(tables)

    def lowering(self, device_type: str) -> Lowering | None:
        """Call ``tensorbus_lowering``; None where there is none. Raises ``PluginError`` for anything else."""
        lowering: Lowering | None = self._call("tensorbus_lowering", device_type=device_type)
        if lowering is not None and not callable(getattr(lowering, "compile", None)):
            raise PluginError(
                f"tensorbus_lowering of {self.owner} returned {type(lowering).__qualname__!r}; it must return"
                f" an object with a method compile(order)."
            )
        return lowering

    def ops(self) -> list[object]:
        """Call ``tensorbus_ops``, once, and return the ops; what adds them to the table checks each.

        Raises ``PluginError`` where the result cannot be gone through.
        """
        if self._ops is None:
            collected: list[object] = []
            for ops in self._call("tensorbus_ops"):
                if not isinstance(ops, Iterable):
                    raise PluginError(
                        f"tensorbus_ops of {self.owner} returned {ops!r}; it must return an iterable of ops."
                    )
                collected += ops
            self._ops = collected
        return self._ops

    def communicator(self) -> CommunicatorFactory:
        """Call ``tensorbus_communicator``. Raises ``PluginError`` where the result makes no communicators."""
        factory: CommunicatorFactory = self._call("tensorbus_communicator", name=self.name)
        if not callable(getattr(factory, "connect", None)) or not callable(getattr(factory, "verdict", None)):
            raise PluginError(
                f"tensorbus_communicator of {self.owner} returned {type(factory).__qualname__!r} for"
                f" {self.name!r}; it must return an object with methods verdict(device_type, rendezvous) and"
                f" connect(rendezvous)."
            )
        priority: object = getattr(factory, "priority", 0)
        if not isinstance(priority, int | float):
            raise PluginError(
                f"communicator {self.name!r} of {self.owner}: its priority is a number, got {priority!r}."
            )
        return factory

    def store(self) -> StoreFactory:
        """Call ``tensorbus_store``. Raises ``PluginError`` where the result opens no stores."""
        factory: StoreFactory = self._call("tensorbus_store", scheme=self.name)
        if not callable(getattr(factory, "open", None)):
            raise PluginError(
                f"tensorbus_store of {self.owner} returned {type(factory).__qualname__!r} for {self.name!r};"
                f" it must return an object with a method open(url, serve, timeout)."
            )
        return factory

    def launcher(self) -> LauncherFactory:
        """Call ``tensorbus_launcher``. Raises ``PluginError`` where the result opens no launchers."""
        factory: LauncherFactory = self._call("tensorbus_launcher", name=self.name)
        if not callable(getattr(factory, "open", None)) or not isinstance(
            getattr(factory, "options", None), Mapping
        ):
            raise PluginError(
                f"tensorbus_launcher of {self.owner} returned {type(factory).__qualname__!r} for"
                f" {self.name!r}; it must return an object with a method open(options) and a table options."
            )
        return factory

    def _call(self, hook: str, **arguments: object) -> Any:
        assert self._hooks is not None, "load() comes first"
        call: Callable[..., Any] = getattr(self._hooks.hook, hook)
        return run_plugin_code(self.owner, REQUESTS[hook], partial(call, **arguments))


def check_table(table: object, owner: str) -> None:
    """Raise ``PluginError`` naming ``owner`` where ``table`` does not map op names to kernels."""
    if not isinstance(table, Mapping):
        raise PluginError(
            f"tensorbus_kernels of {owner} returned {type(table).__qualname__!r}; it must return a mapping"
            f" from op names to callables or Kernel objects."
        )
    for op, kernel in table.items():
        several = isinstance(kernel, list | tuple) and kernel and all(isinstance(k, Kernel) for k in kernel)
        if not isinstance(op, str) or not (several or callable(kernel) or isinstance(kernel, Kernel)):
            raise PluginError(
                f"the kernel table of {owner} maps {op!r} to {kernel!r}; it must map op names to callables,"
                f" Kernel objects, or lists of these, best first."
            )


def _validated(module: object, owner: str, module_name: str) -> PluginManager:
    from pluggy import PluginManager, PluginValidationError

    from . import hookspecs

    manager = PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    known = [name for name in vars(hookspecs) if name.startswith("tensorbus_")]
    try:
        manager.register(module, name=owner)
    except PluginValidationError as error:
        wrong = next((name for name in known if name in str(error)), known[0])
        definition = next((line for line in str(error).splitlines() if "definition" in line), "").partition(
            ": "
        )[2]
        got = f"{definition!r} does not fit" if definition else f"{error} does not fit"
        raise PluginError(
            f"a hook of {owner} has the wrong signature: in {module_name}, {got} the hook"
            f" `{_signature(getattr(hookspecs, wrong))}`. It may leave out parameters, and may not add any."
        ) from error
    for hook in vars(manager.hook):
        if not hook.startswith("_") and hook not in known:
            raise PluginError(
                f"{owner} implements {hook!r} in {module_name}, which is no hook of backend API"
                f" {API_VERSION}.{suggest(hook, known)} Hooks: {', '.join(known)}."
            )
    if not manager.get_hookcallers(module):
        raise PluginError(
            f"{owner} implements no hook: {module_name} must have functions marked with `@hookimpl` from"
            f" tensorbus.backend_api, named {', '.join(known)}."
        )
    return manager


def _signature(function: Callable[..., Any]) -> str:
    import inspect

    return f"{function.__name__}{inspect.signature(function)}".replace("'", "")


def _runtime_functions() -> list[str]:
    from ..backend_interface.protocols import Runtime

    return [name for name, item in vars(Runtime).items() if callable(item) and not name.startswith("_")]


def extension_of(
    name: str, extension: object, manifest: Manifest | PathLike[str] | str | None, plain: Manifest
) -> Extension:
    """Return the extension of a module or object with hooks, or of a module's dotted name.

    ``manifest`` is one, the path of a file or its TOML text. Without it the ``manifest.toml`` of a named
    module is read, and an object has ``plain``.
    """
    from .manifest import Manifest

    entry_point = None
    if isinstance(extension, str):
        entry_point = EntryPoint(name, extension, "registered", extension.partition(".")[0], "", "sys.path")
        if manifest is None:
            manifest = Manifest.read(manifest_path(entry_point.module, extension), extension)
    if isinstance(manifest, os.PathLike):
        manifest = Manifest.read(manifest, name)
    elif isinstance(manifest, str):
        manifest = Manifest.parse(manifest, name, "text handed to register()")
    return Extension(name, entry_point, None if entry_point else extension, manifest or plain)
