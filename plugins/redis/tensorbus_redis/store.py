"""The ``Store`` on a Redis server that runs already: keys and queues of one program under a prefix."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tensorbus.backend_api import (
    store_amount,
    store_key,
    store_keys,
    store_pairs,
    store_seconds,
    store_sum,
    store_value,
)
from tensorbus.errors import ArgumentError, DistributedError, DistributedTimeoutError

T = TypeVar("T")
_DEFAULT_TIMEOUT: Final = 300.0
_POLLS: Final = (0.001, 0.05)
"""The shortest and the longest pause between two looks at a key, in seconds."""
_COMPARE_SET: Final = """
local value = redis.call('GET', KEYS[1]) or ''
if value ~= ARGV[1] then return value end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
"""
_QUEUE_WAIT: Final = 1.0
"""Seconds of one wait for a queue on the server: shorter than what counts as a server that is gone."""


class Factory:
    """Opens ``redis://[user:password@]host[:port][/database][?prefix=name]``."""

    def open(self, url: str, *, serve: bool, timeout: float) -> RedisStore:
        """Return the store. Raises ``DistributedError`` where no server answers in ``timeout`` seconds."""
        parts = urlsplit(url)
        try:
            port, query = parts.port, parse_qs(parts.query, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise ArgumentError(f"distributed: {_safe(url)!r}: {error}.") from None
        database = parts.path.strip("/")
        if not parts.hostname or set(query) - {"prefix"} or (database and not database.isdecimal()):
            raise ArgumentError(
                f"distributed: a store's URL is redis://host:port/database?prefix=name, got {_safe(url)!r}."
            )
        client = redis.Redis(
            host=parts.hostname, port=port or 6379, db=int(database or 0),
            username=unquote(parts.username or "") or None, password=unquote(parts.password or "") or None,
            socket_connect_timeout=timeout, socket_timeout=_QUEUE_WAIT * 30,
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),  # none where the server does not answer
        )  # fmt: skip
        return RedisStore(client, _safe(url), query.get("prefix", [""])[0], timeout)


class RedisStore:
    """Keys, queues and expiry on the server of ``client``; ``url`` names it, without a password.

    What a program writes stays there when it ends: programs that share a server have a ``prefix`` each.
    """

    def __init__(self, client: Any, url: str, prefix: str, timeout: float = _DEFAULT_TIMEOUT) -> None:
        self._client, self._timeout = client, timeout
        self._keys, self._queues = f"tensorbus:{prefix}:key:", f"tensorbus:{prefix}:queue:"
        self._losses, self._lives = f"tensorbus:{prefix}:losses", f"tensorbus:{prefix}:alive:"
        self._subscriptions: list[Any] = []
        self.url = url
        self._swap: Any = client.register_script(_COMPARE_SET)
        self._reach()

    def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Put ``value`` under ``key``; for ``ttl`` seconds where they are given."""
        name, data = self._keys + store_key(key), store_value(value)
        seconds = None if ttl is None else store_seconds(ttl, 0)
        if seconds is not None and seconds <= 0:
            self.delete_key(key)
            return
        milliseconds = None if seconds is None else max(round(seconds * 1000), 1)
        self._do(lambda: self._client.set(name, data, px=milliseconds))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        limit, name = self._limit(timeout), self._keys + store_key(key)

        def look() -> Any:
            value, loss = self._at_once(lambda all_: (all_.get(name), all_.hget(self._losses, key)))
            return loss if value is None and self._put_lost([key], [loss]) else value

        value = self._until(look, limit)
        if value is None:
            raise DistributedTimeoutError(f"store {self.url}: nobody set {key!r} within {limit:g} seconds.")
        return bytes(value)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum, of 64 bits."""
        name, amount = self._keys + store_key(key), store_amount(amount)
        try:
            return int(self._do(lambda: self._client.incrby(name, amount)))
        except redis.ResponseError as error:
            value = self._do(lambda: self._client.get(name))
            store_sum(key, value, amount)  # which says what the matter is
            raise DistributedError(f"store {self.url}: add: {key!r} holds {value!r}: {error}.") from None

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        limit, keys = self._limit(timeout), store_keys(keys)
        if self._until(lambda: self.check(keys) or None, limit) is None:
            values = self.multi_get(keys)
            missing = [repr(key) for key, value in zip(keys, values, strict=True) if value is None]
            if missing:
                raise DistributedTimeoutError(
                    f"store {self.url}: nobody set {', '.join(missing)} within {limit:g} seconds."
                )

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        keys = [*{*store_keys(keys)}]
        if not keys:
            return True
        names = [self._keys + key for key in keys]
        count, losses = self._at_once(lambda all_: (all_.exists(*names), all_.hmget(self._losses, keys)))
        if count < len(names) and self._put_lost(keys, losses):
            count = self._do(lambda: self._client.exists(*names))
        return int(count) == len(names)

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        name, pair = self._keys + store_key(key), [store_value(expected), store_value(value)]
        return bytes(self._do(lambda: self._swap(keys=[name], args=pair)))

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        name = self._keys + store_key(key)
        return bool(self._do(lambda: self._client.delete(name)))

    def multi_get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now, None where there is none: one request."""
        names = [self._keys + key for key in store_keys(keys)]
        return list(self._do(lambda: self._client.mget(names))) if names else []

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Put several values: one request."""
        pairs = {self._keys + key: value for key, value in zip(*store_pairs(keys, values), strict=True)}
        if pairs:
            self._do(lambda: self._client.mset(pairs))

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with ``prefix``, in order."""
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", self._keys + store_key(prefix)) + "*"
        names = self._do(lambda: {*self._client.scan_iter(pattern, count=1000)})
        return sorted(name.decode().removeprefix(self._keys) for name in names)

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return len(self.list_keys())

    def append(self, key: str, value: bytes) -> None:
        """Put ``value`` behind what is under ``key``."""
        name, data = self._keys + store_key(key), store_value(value)
        self._do(lambda: self._client.append(name, data))

    def queue_len(self, key: str) -> int:
        """Return how many values the queue ``key`` holds."""
        name = self._queues + store_key(key)
        return int(self._do(lambda: self._client.llen(name)))

    def queue_push(self, key: str, value: bytes) -> int:
        """Put a value at the end of the queue ``key``; return how many it holds."""
        name, data = self._queues + store_key(key), store_value(value)
        return int(self._do(lambda: self._client.rpush(name, data)))

    def queue_pop(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for the first value of the queue ``key`` and take it. Raises ``DistributedTimeoutError``."""
        limit, name = self._limit(timeout), self._queues + store_key(key)
        end = time.monotonic() + limit
        value = self._do(lambda: self._client.lpop(name))
        while value is None and (left := end - time.monotonic()) > 0:
            seconds = max(min(left, _QUEUE_WAIT), 0.001)  # 0 would be for ever
            pair: Any = self._do(partial(self._client.blpop, [name], seconds))
            value = pair and pair[1]
        if value is None:
            raise DistributedTimeoutError(
                f"store {self.url}: queue {key!r} stayed empty for {limit:g} seconds."
            )
        return bytes(value)

    def set_on_loss(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key`` once this process's connection has ended: for whoever looks then.

        So others hear of a process that ends without a word. It subscribes to a channel: the server knows who
        does.
        """
        channel, data = self._lives + store_key(key), store_value(value)
        subscription: Any = self._client.pubsub(ignore_subscribe_messages=False)
        self._do(lambda: subscription.subscribe(channel))
        self._do(lambda: subscription.get_message(timeout=_QUEUE_WAIT * 30))  # the server has done it
        self._subscriptions.append(subscription)
        self._do(lambda: self._client.hset(self._losses, key, data))

    def _put_lost(self, keys: Sequence[str], losses: Sequence[Any]) -> bool:
        """Put what was to be put once a connection ends, where that has; return whether there was any."""
        due = {key: value for key, value in zip(keys, losses, strict=True) if value is not None}
        if not due:
            return False
        channels = [self._lives + key for key in due]
        counts = self._do(lambda: self._client.pubsub_numsub(*channels))
        lost = {key: value for (key, value), (_, count) in zip(due.items(), counts, strict=True) if not count}
        self.multi_set([*lost], [*lost.values()])
        return bool(lost)

    def _at_once(self, request: Callable[[Any], object]) -> list[Any]:
        """Return the answers to several requests, which go as one."""

        def asked() -> list[Any]:
            with self._client.pipeline(transaction=False) as all_:
                request(all_)
                return list(all_.execute())

        return self._do(asked)

    def close(self, reason: str = "") -> None:
        """Leave; the server stays, and what was written there."""
        for subscription in self._subscriptions:
            subscription.close()
        self._client.close()

    def _limit(self, timeout: float | None) -> float:
        return store_seconds(timeout, self._timeout)

    def _until(self, look: Callable[[], Any], limit: float) -> Any:
        """Return what ``look`` returns once that is not None; None after ``limit`` seconds."""
        end, (pause, longest) = time.monotonic() + limit, _POLLS
        while (value := look()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest)
        return value

    def _do(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except redis.ResponseError:
            raise
        except (redis.RedisError, OSError) as error:
            raise DistributedError(
                f"store {self.url}: the Redis server is gone, or cannot be reached: {error}. Ranks that met"
                f" there have to start again when it runs."
            ) from error

    def _reach(self) -> None:
        """Wait for a server that is not there yet."""
        end, pause = time.monotonic() + self._timeout, 0.01
        while True:
            try:
                self._client.ping()
                return
            except (redis.AuthenticationError, redis.ResponseError) as error:
                raise DistributedError(
                    f"store {self.url}: the Redis server refuses: {error}. A user and a password stand in the"
                    f" URL: redis://user:password@host:port."
                ) from error
            except (redis.RedisError, OSError) as error:
                if time.monotonic() + pause > end:
                    raise DistributedError(
                        f"store {self.url}: no Redis server answered within {self._timeout:g} seconds:"
                        f" {error}. Start one by `redis-server --port 6379`, or correct the URL."
                    ) from error
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def _safe(url: str) -> str:
    """Return a URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
