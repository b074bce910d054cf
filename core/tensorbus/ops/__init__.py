"""The meaning of operations: a file for each family, a folder for each subject.

An op's definition has its shapes, dtypes, derivative, batching, sharding, decomposition; nothing is run here.
Folders: ``creation``, ``elementwise``, ``reduction``, ``movement``, ``indexing``, ``ordering``, ``matmul``,
``linalg``, ``nn``. In order: ``definition``, ``call_errors``, ``argument_kinds``, ``batching_rules``,
``sharding_rules``, ``fused_function``, ``fused_update``, ``lazy_families``, ``fft``.
"""
