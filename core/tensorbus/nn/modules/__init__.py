"""The layers, a file or a folder for each kind.

A module holds parameters; a tensor comes in, a tensor leaves. In order: ``container``, ``linear``,
``embedding``, ``convolution``, ``padding``, ``pooling``, ``rearrange``, ``normalization``, ``batch_norm``,
``dropout``, ``activation``, ``transformer``, ``recurrent``, ``loss``, ``lazy``.
"""
