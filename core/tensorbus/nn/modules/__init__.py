"""The layers, a file for each kind.

A module holds parameters; a tensor comes in, a tensor leaves. In order: ``container``, ``linear``,
``embedding``, ``conv``, ``conv_transpose``, ``padding``, ``pooling``, ``rearrange``, ``normalization``,
``batch_norm``, ``dropout``, ``activation``, ``activation_smooth``, ``activation_piecewise``, ``attention``,
``packed_rows``, ``transformer_layer``, ``transformer``, ``rnn_cell``, ``rnn``, ``distance``, ``loss``,
``adaptive_softmax``, ``linear_cross_entropy``, ``lazy``.
"""
