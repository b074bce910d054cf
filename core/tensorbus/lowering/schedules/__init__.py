"""From a fusion group to loop IR: one file a schedule, one table that chooses.

A fusion group and a target come in, kernels leave. By subject: ``pointwise``, ``reduction``,
``normalization``, ``scan``, ``sort``, ``scatter``, ``attention``. In order: ``schedule``, ``choose``,
``matmul``, ``workgroup``.
"""
