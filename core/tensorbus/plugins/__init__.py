"""Device types and plugins: found lazily, opened once, kept apart from each other.

A name comes in; a probed backend leaves, or the stored reason why there is none: ``backend.Failure``, which
``Backend.open`` keeps for a device and ``Addon.attempt`` for any other plugin.
This is the one facade to them; nothing above it touches the plugin manager. In order: ``hookspecs``,
``foreign_text``, ``type_name``, ``discovery``, ``manifest``, ``api_version``, ``allow_block``,
``plugin_code``, ``contract``, ``extension``, ``probe``, ``backend``, ``addon``, ``connectors``,
``plugin_status``, ``registry``.

>>> backend("cpu").device_count
1
"""

from __future__ import annotations

from .backend import Backend as Backend
from .backend import Failure as Failure
from .backend import State as State
from .registry import Registry as Registry

_registry = Registry()

backend = _registry.backend
known_types = _registry.known_types
dlpack_types = _registry.dlpack_types
host_backend = _registry.host_backend
host_type = _registry.host_type
hidden = _registry.hidden
is_examined = _registry.is_examined
opened = _registry.opened
status = _registry.status
ops = _registry.ops
register = _registry.register
unregister = _registry.unregister
load_plugin = _registry.load_plugin
register_plugin = _registry.register_plugin
unregister_plugin = _registry.unregister_plugin
retry = _registry.retry
communicators = _registry.connectors.communicators
store = _registry.connectors.store
store_schemes = _registry.connectors.store_schemes
launcher = _registry.connectors.launcher
launchers = _registry.connectors.launchers
register_communicator = _registry.connectors.register_communicator
unregister_communicator = _registry.connectors.unregister_communicator
on_change = _registry.on_change
changed = _registry.changed
