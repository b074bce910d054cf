"""In and out: NumPy, DLPack, copies between devices, pinned memory, printing.

Nested sequences, arrays and capsules come in as tensors, and tensors leave as these. In order:
``host_array``, ``nested_sequence``, ``array_namespace``, ``lent_memory``, ``dlpack_export``, ``transfer``,
``pinned_memory``, ``repr``, ``ufuncs``, ``einops_backend``.
"""
