"""The GPU of a Mac through MLX: generated MSL and MLX's own functions.

A value is an MLX array. In order: ``extension``, ``device``, ``memory``, ``kernels``, ``kernels_mlx``,
``dialect``, ``lowering``, ``compiler``, ``mlx_kernel_wrapper``, ``host_shim``.
"""
