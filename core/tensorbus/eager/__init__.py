"""The Python functions and methods of ops: the path of a call to a kernel.

Tensors and numbers come in, a plan of dispatch runs, a tensor leaves; in-place calls write over the operand's
memory where nobody can tell. In order: ``functions``, ``methods``, ``tensor_methods``, ``call``, ``runner``,
``torch_forms``, ``rounded_divide``, ``inplace_methods``, ``inplace_kernel``, ``setitem``,
``plugin_ops``, ``explain``.
"""
