"""GPUs and processors with an OpenCL driver: generated OpenCL C.

A value is a strided array over a buffer. In order: ``extension``, ``icd_loader``, ``device``, ``queues``,
``memory``, ``pinned_memory``, ``dlpack``, ``kernels``, ``dialect``, ``lowering``, ``compiler``,
``nested_sines``, ``kernel_lru``, ``launch_template``, ``command_replay``, ``shutdown``.
"""
