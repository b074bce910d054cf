"""From an op and the types of its operands to the plan that runs it, made once for a signature, then cached.

Modes see an op first (``modes``, ``levels``). What they hand on goes through four stages, each of which takes
what the one before it returned: ``signature``, ``candidates``, ``selection``, ``plan``. Beside them stands
what the stages ask: ``kernel_tables``, ``kernel_preference``, ``host_fallback``, ``result_check``,
``foreign_kernels``; then ``decision_log``, ``remarks`` and ``default_dtype``.
"""
