"""The loop IR: kernels before and after scheduling.

A schedule builds it from index expressions, layouts and loops; verifiers check it, ``codegen`` renders it. In
order: ``kernel_task``, ``layout``, ``index_expr``, ``dim_symbols``, ``inline``, ``loop_ir``, ``builder``,
``printer``, ``verify``, ``affine_bounds``, ``verify_bounds``.
"""
