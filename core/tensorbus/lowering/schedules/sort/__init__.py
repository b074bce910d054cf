"""Schedules of sorts: by rank, by radix passes, by partition.

In order: ``sort``, ``bucket_pass``, ``tile_kernel``, ``radix_pass_gpu``, ``partition_gpu``.
"""
