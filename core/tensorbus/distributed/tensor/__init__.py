"""Tensors whose parts lie on the ranks of a mesh, and ops on them.

In order: ``placements``, ``device_mesh``, ``layout``, ``redistribute``, ``explicit_mode``, ``sharding_plan``,
``implicit_replication``, ``mesh_mode``, ``part_agreement``, ``gradient_layout``, ``dtensor``, ``local_map``,
``creation``, ``random``, ``module_hook``, ``distribute_module``, ``sharding_table``.
"""
