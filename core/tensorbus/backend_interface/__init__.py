"""The protocols that a backend implements.

Core asks a runtime, a kernel and a lowering for nothing else; ``StridedArray`` is the value of devices
without an array library. In order: ``protocols``, ``capabilities``, ``strided_array``.
"""
