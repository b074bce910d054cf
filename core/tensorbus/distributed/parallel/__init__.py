"""Modules that ranks train together.

In order: ``module_class``, ``labels``, ``policies``, ``tensor_trees``, ``computing_copies``,
``gradient_bucket``, ``gradient_reducer``, ``rank_agreement``, ``shared_state``, ``joined_ranks``,
``replicate``, ``flat_parts``, ``group_options``, ``group_parts``, ``gradient_parts``, ``saved_shards``,
``parameter_group``, ``divided_module``, ``fully_shard``, ``styles``, ``parallelize``, ``vocabulary_loss``.
"""
