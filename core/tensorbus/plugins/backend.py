"""``Backend``: one device type as this process knows it, from its entry point to its kernel tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ..backend_interface.protocols import DeviceProperties, KernelTable, MemoryStats
from ..dtypes.definition import DType
from ..errors import DeviceError, DeviceUnavailableError, PluginError, TensorbusError
from ..system import env
from .extension import IMPORT, KERNELS, PROBE, Extension
from .foreign_text import error_text, kind_of, printable
from .plugin_code import run_plugin_code
from .probe import Probe, ProbeTimeoutError

if TYPE_CHECKING:
    from ..backend_interface.compilation import Lowering
    from ..backend_interface.protocols import Runtime
    from .discovery import EntryPoint
    from .manifest import Manifest

T = TypeVar("T")
State = Literal["discovered", "imported", "probed", "ready", "unavailable"]

MAX_UNITS: Final = 4096
"""The most units that a device type may have: more is a mistake, and a list of them would fill the memory."""

_DESCRIPTIONS: Final = (
    ("name", str, "a string"),
    ("memory", int | None, "a number of bytes, or None"),
    ("extra", Mapping, "a mapping"),
)
"""What is shown of a unit, and what it must be."""

# What a driver raises where there is no hardware is for its author to choose; these say that code is wrong.
_MISTAKES = (
    TypeError,
    AttributeError,
    NameError,
    SyntaxError,
    AssertionError,
    PluginError,
    ProbeTimeoutError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a plugin cannot be used. ``error`` keeps its traceback.

    ``stage`` is what was being done. ``broken`` is False where it merely lacks hardware or a driver.
    """

    stage: str
    error: BaseException
    broken: bool

    @property
    def reason(self) -> str:
        """One line that says why."""
        text = error_text(self.error)
        if isinstance(self.error, PluginError):
            return text
        ours = isinstance(self.error, TensorbusError | ProbeTimeoutError)
        return f"{self.stage} failed: {'' if ours else f'{kind_of(self.error)}: '}{text}"

    @property
    def traceback(self) -> str:
        """The traceback, as Python prints it."""
        import traceback

        try:
            return "".join(traceback.format_exception(self.error))
        except KeyboardInterrupt:
            raise
        except BaseException as second:  # the error is of a class of the plugin's
            return f"{kind_of(self.error)}: its traceback cannot be had, as that raises {kind_of(second)}"


class Backend:
    """A device type. ``runtime``, ``device_count`` and ``kernels`` are set once its state is ready.

    ``kernels`` holds the tables as ``(owner, table)``, the device's own first. Compared by identity.
    """

    def __init__(self, type: str, extension: Extension) -> None:
        self.type = type
        self.extension = extension
        self.state: State = "discovered"
        self.failure: Failure | None = None
        self.runtime: Runtime = None  # type: ignore[assignment]
        self.device_count = 0
        self.kernels: list[tuple[str, KernelTable]] = []
        self._lowering: tuple[Lowering | None] | None = None
        self._probes: dict[str, Probe[Any]] = {}
        self._stage = "reading its manifest"
        self._threads: set[int] = set()
        self._lock = threading.RLock()

    @property
    def entry_point(self) -> EntryPoint | None:
        """The entry point; None where the device was registered by a call."""
        return self.extension.entry_point

    @property
    def dist(self) -> str:
        """The distribution that supplies the device type."""
        return self.extension.dist

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return self.extension.version

    @property
    def manifest(self) -> Manifest:
        """The manifest, read when first asked for. Raises ``PluginError`` where it is missing or wrong."""
        return self.extension.manifest

    @property
    def import_seconds(self) -> float | None:
        """The seconds that the import of the extension module took; None before."""
        return self.extension.import_seconds

    @property
    def reason(self) -> str | None:
        """Why it is unavailable, in a line; None where it is not."""
        return self.failure.reason if self.failure is not None else None

    def __repr__(self) -> str:
        return f"<Backend {self.type!r} {self.state} from {self.extension.owner}>"

    def properties(self, index: int) -> DeviceProperties:
        """Return what a unit says of itself.

        Raises ``DeviceError`` with the cause where it fails to, ``PluginError`` for anything but properties.
        """
        try:
            properties: object = run_plugin_code(
                self.extension.owner, f"runtime.properties({index})", lambda: self.runtime.properties(index)
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise DeviceError(
                f"device '{self.type}:{index}' of {self.extension.owner} cannot be described: its"
                f" runtime.properties({index}) failed: {kind_of(error)}: {error_text(error)}"
            ) from error

        dtypes = getattr(properties, "dtypes", None) if isinstance(properties, DeviceProperties) else None
        if not isinstance(dtypes, frozenset) or not all(isinstance(d, DType) for d in dtypes):
            got = f"DeviceProperties whose dtypes are {dtypes!r}" if dtypes is not None else repr(properties)
            raise self.breach(
                f"properties({index})", got, "DeviceProperties with a frozenset of tensorbus dtypes"
            )
        assert isinstance(properties, DeviceProperties)
        for name, kind, needed in _DESCRIPTIONS:
            value = getattr(properties, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                got = f"DeviceProperties whose {name} is {printable(repr(value), 200)}"
                raise self.breach(f"properties({index})", got, f"DeviceProperties whose {name} is {needed}")
        return properties

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the bytes that a unit has in use. Raises ``PluginError`` for anything else.

        What the runtime raises of its own is a ``DeviceError`` that names the package.
        """
        try:
            stats: object = self.runtime.memory_stats(index)
        except TensorbusError:
            raise
        except Exception as error:
            raise self.failed(f"runtime.memory_stats({index})", error) from error
        if not isinstance(stats, MemoryStats):
            raise self.breach(f"memory_stats({index})", repr(stats), "MemoryStats")
        return stats

    def breach(self, call: str, got: str, needed: str) -> PluginError:
        """Return the error for a function of the runtime that returned something else than it must."""
        return PluginError(
            f"device type {self.type!r} of {self.extension.owner}: its runtime.{call} returned {got}; it must"
            f" return {needed}."
        )

    def failed(self, call: str, error: BaseException) -> DeviceError:
        """Return the error for a function of the package that raised something of its own."""
        return DeviceError(
            f"device type {self.type!r} of {self.extension.owner}: its {call} failed with"
            f" {kind_of(error)}: {error_text(error)}"
        )

    def lowering(self) -> Lowering | None:
        """Return what compiles programs for the device, asked for once; None where there is none."""
        if self._lowering is None:
            with self._exclusive():
                if self._lowering is None:
                    self._lowering = (self._handed(),)
        return self._lowering[0]

    def _handed(self) -> Lowering | None:
        try:
            return self.extension.lowering(self.type)
        except (TensorbusError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.failed("tensorbus_lowering", error) from error

    def open(self, finish: Callable[[Backend], None]) -> bool:
        """Import and probe, once; return True if this call made it ready.

        ``finish`` is called before other threads see it ready: it adds what other plugins supply. Raises
        ``DeviceUnavailableError`` or ``PluginError`` from the stored cause. An interrupt leaves it as it was:
        the next call goes on from there.
        """
        with self._exclusive():
            if self.state == "ready":
                return False
            if self.failure is None:
                try:
                    self._open()
                    finish(self)
                    self.state = "ready"
                    return True
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    self.fail(Failure(stage=self._stage, error=error, broken=self._is_broken(error)))
            raise self._error()

    def _open(self) -> None:
        extension = self.extension
        self._stage = "reading its manifest"
        extension.check()
        if extension.manifest.type != self.type:
            raise PluginError(
                f"{extension.owner} claims the device type {self.type!r} in its entry point, but its manifest"
                f" says {extension.manifest.type!r} ([device] type); they must be equal."
            )
        self._limited(IMPORT, extension.load, "its import")
        self.state = "imported"
        runtime, count = self._limited(PROBE, self._ask, "the driver")
        self.state = "probed"
        tables = self._limited(KERNELS, lambda: extension.kernels(self.type), "its hook tensorbus_kernels")
        kernels = [(extension.owner, table) for table in tables]
        self.runtime, self.device_count, self.kernels = runtime, count, kernels

    def _limited(self, stage: str, work: Callable[[], T], what: str) -> T:
        """Return what ``work`` returns within the limit of probes; ``what`` hangs where it does not.

        It goes on in its thread then, and after an interrupt: who asks again waits for the same work.
        """
        self._stage = stage
        probe: Probe[T] | None = self._probes.get(stage)
        if probe is None:
            name = f"tensorbus-probe-{self.type}"
            probe = Probe(self.watched(work), name, inline=self.extension.being_imported)
            self._probes[stage] = probe
        try:
            return probe.wait(env.probe_timeout())
        except ProbeTimeoutError as error:
            raise ProbeTimeoutError(
                f"{error} (TENSORBUS_PROBE_TIMEOUT sets the limit): {what} hangs"
            ) from None
        finally:
            if probe.is_done:
                del self._probes[stage]

    def _ask(self) -> tuple[Runtime, int]:
        runtime, owner = self.extension.runtime(self.type), self.extension.owner
        count = run_plugin_code(owner, "device_count()", runtime.device_count)
        if type(count) is not int or not 0 <= count <= MAX_UNITS:
            raise PluginError(
                f"device_count() of {self.type!r} from {owner} returned"
                f" {printable(repr(count), 200)}; it must return how many units there are,"
                f" as an int from 0 to {MAX_UNITS}."
            )
        if count == 0:
            raise DeviceUnavailableError("its driver found no device (device_count() is 0)")
        return runtime, count

    def watched(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return ``work``, made to get an error instead of a deadlock where it asks for this device."""

        def run() -> T:
            me = threading.get_ident()
            outermost = me not in self._threads
            self._threads.add(me)
            try:
                return work()
            finally:
                if outermost:
                    self._threads.discard(me)

        return run

    def _is_broken(self, error: BaseException) -> bool:
        if self._stage == IMPORT and not isinstance(error, OSError):
            return True
        return isinstance(error, _MISTAKES) or not isinstance(error, Exception) or self._stage == KERNELS

    def fail(self, failure: Failure) -> None:
        """Make it unavailable for the reason given, until it is asked to ``forget``."""
        self.failure, self.state = failure, "unavailable"

    def forget(self) -> None:
        """Forget a failure, so that the next ``open`` tries again."""
        with self._exclusive():
            if self.failure is not None:
                self.failure, self.state = None, "discovered"
                self._probes.clear()

    def _error(self) -> DeviceUnavailableError | PluginError:
        assert self.failure is not None, "raised for a stored failure only"
        failure, extension = self.failure, self.extension
        kind = PluginError if isinstance(failure.error, PluginError) else DeviceUnavailableError
        message = f"device type {self.type!r} cannot be used: {extension.owner} is installed"
        message += f" ({extension.module_name}), but " if kind is DeviceUnavailableError else ", but "
        message += failure.reason.rstrip(".") + "."
        if failure.stage != "reading its manifest":
            manifest = extension.manifest
            message += f" It needs {printable(manifest.requires).rstrip('.')}." if manifest.requires else ""
            message += (
                f" To install what it needs: {printable(manifest.install)}." if manifest.install else ""
            )
        message += f" `tensorbus doctor` shows details; tensorbus.plugins.retry({self.type!r}) tries again."
        error = kind(message)
        error.__cause__ = failure.error
        return error

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        me = threading.get_ident()
        if me in self._threads:
            raise PluginError(
                f"device type {self.type!r} was asked for while {self.extension.owner} was being opened: its"
                f" extension must not use its own device while it is imported or probed."
            )
        # Limited, because the holder may wait for an import that this thread is in the middle of.
        patience = 3 * env.probe_timeout()
        if not self._lock.acquire(timeout=patience):
            raise DeviceUnavailableError(
                f"device type {self.type!r} cannot be used yet: another thread has been opening it for more"
                f" than {patience:g} s. If this thread is importing that package, let that end before the"
                f" device is used."
            )
        self._threads.add(me)
        try:
            yield
        finally:
            self._threads.discard(me)
            self._lock.release()

    @property
    def opened_by_this_thread(self) -> bool:
        """True while this thread imports or probes it."""
        return threading.get_ident() in self._threads

    def hold_for_fork(self, seconds: float) -> bool:
        """Wait until nobody is opening it, and keep others from it; False where that takes too long.

        Also False, at once, where this thread is the one that opens it.
        """
        return not self.opened_by_this_thread and self._lock.acquire(timeout=seconds)

    def release_after_fork(self) -> None:
        """Let others open it again, after a ``hold_for_fork`` that was True."""
        self._lock.release()

    def renew_after_fork(self) -> bool:
        """In a forked child: renew the lock; return True if the device was ready and is so no longer."""
        self._lock = threading.RLock()
        self._threads = set()
        started = PROBE in self._probes or self.state in ("probed", "ready")
        was_ready = self.state == "ready"
        self._probes.clear()
        if started and not self.extension.manifest.fork_safe:
            error = DeviceUnavailableError(
                "this process was forked from one that had used the device, and its driver does not survive"
                ' a fork; use the "spawn" start method, multiprocessing.get_context("spawn"), or let only the'
                " child use the device"
            )
            self.fail(Failure(stage="using it after a fork", error=error, broken=False))
            return was_ready
        if self.state in ("imported", "probed"):
            self.state = "discovered"
        return False
