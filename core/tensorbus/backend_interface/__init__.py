"""The protocols that a backend implements, and the graph that it is given.

Core asks a runtime, a kernel and a lowering for nothing else; ``StridedArray`` is the value of devices
without an array library. In order: ``spec``, ``protocols``, ``graph``, ``compilation``, ``capabilities``,
``strided_array``, ``handle_counter``, ``foreign_finalizer``, ``communication``, ``mailbox``,
``store_arguments``, ``launching``.
"""
