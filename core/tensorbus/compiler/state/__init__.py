"""The state that a call can reach, and what its run changed.

Arguments, globals and code come in; snapshots, mutations and identities of objects leave. In order:
``code_origin``, ``code_names``, ``argument_history``, ``reachable``, ``inspection``, ``object_view``,
``class_layout``, ``value_identity``, ``global_modes``, ``snapshot``, ``mutations``, ``optimizer_init``.
"""
