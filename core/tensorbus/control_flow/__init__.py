"""Control flow as ops: ``cond``, ``while_loop`` and ``scan``, whose functions become graphs of a program.

Functions of tensors come in; eagerly Python calls them, in a captured function they leave as one node of the
program. In order: ``trees``, ``subgraph``, ``loops``, ``rules``, ``operators``.
"""

from .operators import cond as cond
from .operators import scan as scan
from .operators import while_loop as while_loop
