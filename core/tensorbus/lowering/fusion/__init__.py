"""From a graph to fusion groups.

A graph comes in; which values get a buffer and which ops share a kernel leave. In order: ``placement``,
``materialize``, ``rematerialize``, ``fusion_groups``, ``canonicalize``, ``collapse_dims``, ``access_map``,
``foreach_update``, ``concat_in_place``, ``kernel_cache``.
"""
