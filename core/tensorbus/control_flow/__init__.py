"""Control flow as ops: ``cond``, ``while_loop`` and ``scan``, whose functions become graphs of a program.

Functions of tensors come in; eagerly Python calls them, in a captured function they leave as one node of the
program; ``with_size`` is for functions of a size that only a run knows. In order: ``trees``, ``subgraph``,
``sized_runs``, ``loops``, ``rules``, ``operators``, ``unbacked_size``.
"""

from .operators import cond as cond
from .operators import scan as scan
from .operators import while_loop as while_loop
from .unbacked_size import with_size as with_size
