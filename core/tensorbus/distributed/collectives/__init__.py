"""Operations of a group: as differentiable functions of tensors, and by PyTorch's names.

In order: ``combination``, ``terms``, ``into_memory``, ``functional``, ``calls``, ``operations``,
``messages``, ``objects``.
"""
