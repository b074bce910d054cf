"""The registry of device types and plugins of this process: look-up, late registration, threads and forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Final

from ..errors import DeviceUnavailableError, PluginError, TensorbusError
from ..system import env
from . import allow_block
from .addon import Addon, announce
from .backend import Backend, Failure
from .connectors import Connectors
from .discovery import DEVICES, PLUGINS, EntryPoint, Installed, scan
from .extension import KERNELS, OPS, Extension, extension_of
from .foreign_text import error_text, kind_of
from .type_name import is_type_name

if TYPE_CHECKING:
    from .manifest import Manifest
    from .plugin_status import Kind, PluginStatus


_INSTALL: Final = " Install one: pip install tensorbus."
_EMBEDDED: Final = {"meta": "tensorbus.kernels.meta_device"}
"""The extension modules of the device types that core carries: not installed, so in no list of what is."""


class Registry:
    """All device types and plugins. One lock for the maps, held for moments; one for each device."""

    def __init__(self) -> None:
        self._ready: dict[str, Backend] = {}
        self._late: dict[str, Backend] = {}
        self._backends: dict[EntryPoint | None, Backend] = {}
        self._addons: dict[str | EntryPoint, Addon] = {}
        self._removed: set[str] = set()
        self._installed: Installed | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self.connectors = Connectors(self._group)
        self._held: dict[int, list[Backend]] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._hold_for_fork,
                after_in_parent=self._release_after_fork,
                after_in_child=self._renew_after_fork,
            )

    def backend(self, device_type: str) -> Backend:
        """Return the backend of ``device_type``, imported, probed and ready.

        Raises ``DeviceUnavailableError`` where it is not installed, blocked, or cannot be used here, and
        ``PluginError`` where its package breaks the contract; the cause is chained.
        """
        ready = self._ready.get(device_type)
        if ready is not None:
            return ready
        backend = self._select(device_type)
        opened = backend.open(self._add_kernels)
        with self._lock:
            # It may have been unregistered while it was being opened.
            current = self._late.get(device_type) or self._backends.get(backend.entry_point)
            if current is backend and backend.state == "ready":
                self._ready[device_type] = backend
        if opened:
            announce(self._all_addons())
        return backend

    def known_types(self) -> list[str]:
        """Return the names of all device types that are installed or registered and not switched off."""
        self._refresh()
        with self._lock:
            allowed = {claim.name for claim in self._group(DEVICES) if allow_block.refusal(claim) is None}
            named = {name for name in allowed if is_type_name(name)}
            return sorted(named - self._removed | set(self._late))

    def dlpack_types(self) -> dict[int, str]:
        """Return which device type reads each DLPack device code, by the manifests; imports none of them.

        A manifest that is missing or wrong counts for nothing here; asking for its device says what is wrong.
        """
        types: dict[int, str] = {}
        for name in self.known_types():
            try:
                manifest = self._select(name).manifest
            except TensorbusError:
                continue
            if manifest.dlpack_type is not None and manifest.compatible:
                types.setdefault(manifest.dlpack_type, name)
        return types

    def host_backend(self) -> Backend:
        """Return the backend whose values live in host memory, by its manifest; ready.

        Raises ``DeviceUnavailableError`` where none is installed, and ``PluginError`` where several are and
        ``TENSORBUS_DEFAULT_DEVICE`` names none of them.
        """
        name = self.host_type()
        if name is None:
            raise DeviceUnavailableError(
                f"no installed device type lives in host memory (host = true in its manifest). Installed:"
                f" {', '.join(self.known_types()) or 'none'}.{self.hidden() or _INSTALL}"
            )
        return self.backend(name)

    def hidden(self) -> str:
        """Return which installed devices the user's switches hide, as a sentence after a space; "": none."""
        with self._lock:
            return allow_block.hidden(self._group(DEVICES))

    def host_type(self) -> str | None:
        """Return the name of the host device type, without importing it; None where there is none."""
        hosts = [name for name in self.known_types() if self._declares_host(name)]
        if len(hosts) > 1:
            preferred = (env.default_device() or "").partition(":")[0]
            if preferred not in hosts:
                raise PluginError(
                    f"{len(hosts)} installed device types live in host memory: {', '.join(hosts)}. Choose"
                    f" one: set TENSORBUS_DEFAULT_DEVICE={hosts[0]}, or TENSORBUS_BLOCK={hosts[-1]}."
                )
            return preferred
        return hosts[0] if hosts else None

    def _declares_host(self, device_type: str) -> bool:
        try:
            manifest = self._select(device_type).manifest
        except TensorbusError:
            return False
        return manifest.host and manifest.compatible

    def register(
        self, device_type: str, extension: object, manifest: Manifest | PathLike[str] | str | None = None
    ) -> Backend:
        """Add a device type while the program runs; return its backend, not yet opened.

        ``extension`` is a module or object with hooks, or the dotted name of a module. ``manifest`` is a
        ``Manifest``, the path of a file or its TOML text; without it, the ``manifest.toml`` of a named module
        is read, and an object gets a plain one. Raises ``PluginError`` where the device type is taken.

        >>> from types import SimpleNamespace
        >>> from tensorbus.plugins.hookspecs import hookimpl
        >>> hooks = SimpleNamespace(tensorbus_device=hookimpl(lambda device_type: None))
        >>> Registry().register("npu", hooks)
        <Backend 'npu' discovered from SimpleNamespace>
        """
        if not is_type_name(device_type):
            raise PluginError(
                f"{device_type!r} cannot name a device type; use ASCII letters, digits, '_' and '-'."
            )
        from .manifest import Manifest

        plain = Manifest(name=device_type, type=device_type)
        backend = Backend(device_type, extension_of(device_type, extension, manifest, plain))
        with self._lock:
            taken = self._late.get(device_type)
            owners = (
                [taken.extension.owner]
                if taken
                else ["tensorbus"]
                if device_type in _EMBEDDED
                else [str(claim) for claim in self._claims(device_type) if allow_block.refusal(claim) is None]
            )
            if owners:
                raise PluginError(
                    f"device type {device_type!r} of {backend.extension.owner!r} is already supplied by"
                    f" {', '.join(owners)}; call unregister({device_type!r}) first, or choose another name."
                )
            self._removed.discard(device_type)
            self._late[device_type] = backend
        self._changed()
        return backend

    def unregister(self, device_type: str) -> None:
        """Take a device type out of this process; an installed one stays out until ``retry`` is called.

        Raises ``DeviceUnavailableError`` where there is no such device type.
        """
        with self._lock:
            if self._late.pop(device_type, None) is None:
                claims = self._claims(device_type)
                if not claims and device_type in self._addons:
                    raise PluginError(
                        f"{device_type!r} is a plugin, not a device type: call unregister_plugin"
                        f"({device_type!r})."
                    )
                if not claims:
                    raise allow_block.unknown(device_type, self.known_types(), self._group(DEVICES))
                self._removed.add(device_type)
                for claim in claims:
                    self._backends.pop(claim, None)
            self._ready.pop(device_type, None)
        self._changed()

    def retry(self, device_type: str) -> None:
        """Forget why a device type failed, or that it was unregistered: the next look-up tries again."""
        with self._lock:
            self._removed.discard(device_type)
        self._select(device_type).forget()
        self._changed()

    def load_plugin(self, name: str, kind: str = "plugin") -> None:
        """Import a plugin that supplies no device, and get its ops, or what it connects or starts ranks by.

        What goes wrong is kept in its status.
        """
        if kind != "plugin":
            self.connectors.load(kind, name)
            return
        for addon in self._all_addons():
            if addon.extension.name == name:
                addon.attempt(OPS, addon.extension.ops)

    def register_plugin(
        self, name: str, extension: object, manifest: Manifest | PathLike[str] | str | None = None
    ) -> None:
        """Add a plugin that supplies kernels or ops while the program runs; takes what ``register`` takes.

        Raises ``PluginError`` where the name is taken, or where it fails.
        """
        from .manifest import Manifest

        addon = Addon(extension_of(name, extension, manifest, Manifest(name=name)))
        with self._lock:
            taken = next((a for a in self._all_addons() if a.extension.name == name), None)
            if taken is not None:
                raise PluginError(
                    f"plugin {name!r} is already supplied by {taken.extension.owner}; call unregister_plugin"
                    f"({name!r}) first, or choose another name."
                )
            self._addons[name] = addon
            ready = list(self._ready.values())
        addon.attempt("loading it", list)
        for backend in ready:
            self._add_kernels_of(addon, backend)
        if addon.failure is not None:
            self.unregister_plugin(name)
            raise PluginError(
                f"plugin {name!r} cannot be used: {addon.failure.reason}"
            ) from addon.failure.error
        self._changed()

    def unregister_plugin(self, name: str) -> None:
        """Take out a plugin that was added by ``register_plugin``, and its kernels."""
        with self._lock:
            addon = self._addons.pop(name, None)
            if addon is None:
                late = [key for key in self._addons if isinstance(key, str)]
                raise PluginError(
                    f"no plugin {name!r} was registered. Registered: {', '.join(late) or 'none'}."
                )
            for backend in self._ready.values():
                backend.kernels = [pair for pair in backend.kernels if pair[0] != addon.extension.owner]
        self._changed()

    def ops(self, name: str | None = None) -> list[tuple[str, object]]:
        """Return the ops of plugins and of all devices that are ready, as ``(owner, op)``; unchecked.

        Of the plugins that are not in use yet only those are imported that may define the op ``name``: that
        say so in their manifests, or do not say which they define. None: all.
        A ``PluginError`` stands for the ops of a device whose hook failed; those of a plugin that failed are
        left out, and its failure is kept.
        """
        with self._lock:
            addons, backends = self._all_addons(), list(self._ready.values())
        offered: list[tuple[str, object]] = []
        for backend in backends:
            try:
                offered += [(backend.extension.owner, op) for op in backend.extension.ops()]
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                offered.append((backend.extension.owner, _failed_ops(backend.extension.owner, error)))
        for addon in addons:
            if addon.loaded or name is None or addon.may_define(name):
                offered += [(addon.extension.owner, op) for op in addon.attempt(OPS, addon.extension.ops)]
        announce(addons)
        return offered

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever what a device offers may have changed; return what cancels that.

        It is also called in a forked child, and must take no locks.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def opened(self) -> list[str]:
        """Return the device types that are in use, without opening any."""
        return list(self._ready)

    def status(self) -> list[PluginStatus]:
        """Return what is known of every plugin, without importing any."""
        from .plugin_status import snapshot

        self._refresh()
        with self._lock:
            claims = [claim for claim in self._group(DEVICES) if claim.name not in self._removed]
            late = list(self._late.values())
        statuses = [snapshot(b.type, "device", b.extension, b.state, b.failure, b.device_count) for b in late]
        statuses += [self._claim_status(claim) for claim in claims]
        addons: list[tuple[Kind, Addon]] = [*self.connectors.listed()]
        addons += [("plugin", addon) for addon in self._all_addons()]
        statuses += [
            snapshot(addon.extension.name, kind, addon.extension, addon.state, addon.failure)
            for kind, addon in addons
        ]
        return sorted(statuses, key=lambda status: (status.kind, status.name, status.dist))

    def _claim_status(self, claim: EntryPoint) -> PluginStatus:
        from .plugin_status import snapshot

        unopened = Extension(claim.name, claim)
        refused = allow_block.refusal(claim)
        if refused is not None:
            return snapshot(claim.name, "device", unopened, "blocked", None, refused=refused)
        if not is_type_name(claim.name):
            misnamed = PluginError(
                f"the entry point of {claim.dist} {claim.version} cannot name a device type: {claim.name!r}"
                f" must consist of ASCII letters, digits, '_' and '-'."
            )
            failure = Failure(stage="reading its entry point", error=misnamed, broken=True)
            return snapshot(claim.name, "device", unopened, "unavailable", failure)
        try:
            backend = self._select(claim.name)
        except PluginError as error:
            failure = Failure(stage="choosing it", error=error, broken=True)
            return snapshot(claim.name, "device", unopened, "conflict", failure)
        if backend.entry_point != claim:
            chosen = f"{backend.extension.owner} was chosen for this device type"
            return snapshot(claim.name, "device", unopened, "blocked", None, refused=chosen)
        return snapshot(
            claim.name, "device", backend.extension, backend.state, backend.failure, backend.device_count
        )

    def _select(self, device_type: str) -> Backend:
        with self._lock:
            late = self._late.get(device_type)
            if late is not None:
                return late
            if device_type in _EMBEDDED:
                own = EntryPoint(device_type, _EMBEDDED[device_type], DEVICES, "tensorbus", "", "")
                if own not in self._backends:
                    from .manifest import Manifest

                    manifest = Manifest(name=device_type, type=device_type, fork_safe=True)
                    self._backends[own] = Backend(device_type, Extension(device_type, own, manifest=manifest))
                return self._backends[own]
            claims = self._claims(device_type)
            if not claims:
                raise allow_block.unknown(device_type, self.known_types(), self._group(DEVICES))
            chosen = allow_block.choose_claim(device_type, claims)
            backend = self._backends.get(chosen)
            if backend is None:
                backend = self._backends[chosen] = Backend(device_type, Extension(device_type, chosen))
            return backend

    def _claims(self, device_type: str) -> list[EntryPoint]:
        if device_type in self._removed:
            return []
        claims = [claim for claim in self._group(DEVICES) if claim.name == device_type]
        if not claims and self._refresh():
            claims = [claim for claim in self._group(DEVICES) if claim.name == device_type]
        return claims

    def _refresh(self) -> bool:
        with self._lock:
            stale = self._installed is not None and not self._installed.is_current()
            if stale:
                self._installed = None
            return stale

    def _group(self, group: str) -> Sequence[EntryPoint]:
        if not env.autoload():
            return ()
        with self._lock:
            if self._installed is None:
                self._installed = scan()
            return self._installed.group(group)

    def _all_addons(self) -> list[Addon]:
        with self._lock:
            for claim in self._group(PLUGINS):
                if allow_block.refusal(claim) is None and claim not in self._addons:
                    self._addons[claim] = Addon(Extension(claim.name, claim))
            return list(self._addons.values())

    def _add_kernels(self, backend: Backend) -> None:
        for addon in self._all_addons():
            self._add_kernels_of(addon, backend)

    def _add_kernels_of(self, addon: Addon, backend: Backend) -> None:
        extension = addon.extension
        try:
            wanted = backend.type in extension.manifest.kernels_for or not extension.manifest.compatible
        except PluginError:
            wanted = True
        if wanted:
            tables = addon.attempt(KERNELS, lambda: extension.kernels(backend.type), backend)
            backend.kernels = [*backend.kernels, *((extension.owner, table) for table in tables)]

    def is_examined(self, owner: str) -> bool:
        """Return whether a package says of its kernels that they are examined before each release.

        ``owner`` is the distribution and its version, as kernel tables are signed. Where several in use go by
        that name, as objects that were handed over may, all must say so.
        """
        with self._lock:
            extensions = [b.extension for b in self._ready.values()]
            extensions += [addon.extension for addon in self._addons.values()]
        manifests = [extension.manifest for extension in extensions if extension.owner == owner]
        return bool(manifests) and all(manifest.examined for manifest in manifests)

    def changed(self) -> None:
        """Say that kernels or ops came or went, so that nothing stays that was decided before."""
        self._changed()

    def _changed(self) -> None:
        for callback in list(self._callbacks):
            callback()

    def _hold_for_fork(self) -> None:
        # A child made in the middle of an import inherits locks that nobody there will ever release.
        held = self._held[threading.get_ident()] = []
        deadline = time.monotonic() + env.probe_timeout()
        while True:
            busy = []
            with self._lock:
                backends = [*self._late.values(), *self._backends.values()]
                for backend in backends:
                    if backend.hold_for_fork(0):
                        held.append(backend)
                    elif not backend.opened_by_this_thread:
                        busy.append(backend)
            left = deadline - time.monotonic()
            if not busy or left <= 0:
                return
            # None is held while another is waited for: what is being opened may itself open one of these.
            self._release_held(held)
            if busy[0].hold_for_fork(left):
                busy[0].release_after_fork()

    def _release_held(self, held: list[Backend]) -> None:
        while held:
            held.pop().release_after_fork()

    def _release_after_fork(self) -> None:
        self._release_held(self._held.pop(threading.get_ident(), []))

    def _renew_after_fork(self) -> None:
        self._held = {}
        self._lock = threading.RLock()
        self.connectors.renew_after_fork()
        for addon in self._addons.values():
            addon.renew_after_fork()
        lost = [b for b in [*self._late.values(), *self._backends.values()] if b.renew_after_fork()]
        for backend in lost:
            self._ready.pop(backend.type, None)
        if lost:
            self._changed()


def _failed_ops(owner: str, error: BaseException) -> PluginError:
    if isinstance(error, PluginError):
        return error
    failed = PluginError(f"tensorbus_ops of {owner} failed: {kind_of(error)}: {error_text(error)}.")
    failed.__cause__ = error
    return failed
