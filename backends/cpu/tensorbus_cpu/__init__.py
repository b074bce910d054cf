"""The host's processor: NumPy, and generated C for large arrays.

A value is a NumPy array. In order: ``extension``, ``device``, ``machine``, ``memory``, ``kernels``,
``dialect``, ``lowering``, ``compiler``, ``user_kernels``. ``native``, ``gemm``, ``convolution`` and ``eager``
hold the code of those subjects.
"""
