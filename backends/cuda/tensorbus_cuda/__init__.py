"""NVIDIA GPUs through CuPy: generated CUDA C++, cuBLASLt, cuDNN.

A value is a strided array over a CuPy block. In order: ``extension``, ``device``, ``unit``, ``memory``,
``kernels``, ``dialect``, ``lowering``, ``compiler``, ``kernel_launch``, ``cudnn``, ``kernels_cupy``,
``user_kernels``, ``async_errors``, ``event_query``, ``interruptible_wait``.
``gemm``, ``attention``, ``convolution``, ``sort``, ``graphs`` and ``copies`` hold the code of those subjects.
"""
