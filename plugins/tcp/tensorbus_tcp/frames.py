"""Requests and answers as bytes: a length of four bytes, then msgpack; and proof of a secret.

The server begins with a random challenge; the client answers with its keyed digest (HMAC-SHA256, RFC 2104)
and a challenge of its own, which the server answers likewise: neither talks to who does not know the secret.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from typing import Any, Final

import msgpack

LENGTH: Final = struct.Struct(">I")
MAX_FRAME: Final = 64 << 20
"""The most bytes of one frame."""
CHALLENGE: Final = 32
DIGEST: Final = 32


def secret() -> bytes:
    """Return the secret of this program; empty where there is none."""
    return os.environ.get("TENSORBUS_STORE_SECRET", "").encode()


def proof(key: bytes, challenge: bytes, side: bytes) -> bytes:
    """Return what shows that one knows ``key``."""
    return hmac.digest(key or b"no secret", side + challenge, "sha256")


def packed(message: Any) -> bytes:
    """Return the frame of a message. Raises ``ValueError`` where it is too long."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > MAX_FRAME:
        raise ValueError(f"{len(body)} bytes are more than the {MAX_FRAME} that one request may have")
    return LENGTH.pack(len(body)) + body


def unpacked(body: bytes) -> Any:
    """Return the message of a frame's body."""
    return msgpack.unpackb(body, raw=False, strict_map_key=False)


def read(connection: socket.socket, length: int) -> bytes:
    """Return the next ``length`` bytes. Raises ``OSError`` where the other side hangs up before."""
    parts, missing = [], length
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise ConnectionError("it hung up")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
