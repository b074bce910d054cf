"""Operations of a group: as differentiable functions of tensors, and by PyTorch's names.

In order: ``combination``, ``functional``, ``operations``, ``messages``, ``objects``.
"""
