"""Random numbers: one counter-based stream for one seed on every device.

A generator's key and counter come in, random bits and numbers leave. In order: ``generator``,
``sampling``.
"""

from __future__ import annotations

from .generator import Generator as Generator
from .generator import Tape as Tape
from .generator import bernoulli as bernoulli
from .generator import chosen as chosen
from .generator import default_generator as default_generator
from .generator import drawing as drawing
from .generator import manual_seed as manual_seed
from .generator import normal as normal
from .generator import open_unit as open_unit
from .generator import open_unit_of as open_unit_of
from .generator import rand as rand
from .generator import randint as randint
from .generator import randn as randn
from .generator import uniform as uniform
from .generator import unit_of as unit_of
from .generator import untaped as untaped
