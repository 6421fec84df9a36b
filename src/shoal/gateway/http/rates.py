"""Rate limits: one bucket of requests for each caller, filled at a steady rate.

A caller whose key was found valid has the bucket of that key, however the header spells it. All
others share buckets by address: one for requests with an unknown key, one for those without a key.
So neither wrong keys nor missing ones take requests from a caller with a valid key.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from typing import Any, TypeVar

from shoal.gateway.keys import Caller, token_of

K = TypeVar("K")
V = TypeVar("V")

MAX_BUCKETS = 100_000  # the least recently used is dropped first
MAX_KNOWN_TOKENS = 100_000
IPV6_PREFIX_BITS = 64  # one customer of a provider has at least so many addresses


class Rates:
    """Buckets of `burst` requests, filled with `rate` a second, in one worker."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._known: OrderedDict[bytes, bytes] = OrderedDict()  # bucket by digest of the token

    def take(self, scope: Any) -> float:
        """Take one request from the bucket of its caller; return how many are left, < 0 if over."""
        header = dict(scope["headers"]).get(b"authorization", b"")
        token = token_of(header.decode("latin-1"))
        known = self._known.get(_digest(token)) if token else None
        if known is not None:
            return self._take(known)
        kind = b"unknown key " if token else b"no key "
        return self._take(kind + _network_of(scope))

    def recognise(self, token: str, caller: Caller) -> None:
        """Give a token that was found valid the bucket of its key from the next request on.

        The request at hand is taken from it too.
        """
        digest = _digest(token)
        if digest not in self._known:
            bucket = f"key {caller.space} {caller.key}".encode()
            _put(self._known, digest, bucket, MAX_KNOWN_TOKENS)
            self._take(bucket)

    def headers(self, left: float) -> list[tuple[bytes, bytes]]:
        """Return the headers of the IETF draft on RateLimit for `left` requests."""
        window = max(1, round(self._burst / self._rate))
        return [
            (b"ratelimit-policy", f'"key";q={self._burst};w={window}'.encode()),
            (b"ratelimit", f'"key";r={max(0, int(left))};t={window}'.encode()),
        ]

    def _take(self, bucket: bytes) -> float:
        now = time.monotonic()
        left, at = self._buckets.get(bucket, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate) - 1
        _put(self._buckets, bucket, (max(left, -1.0), now), MAX_BUCKETS)
        return left


def _put(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Store a value as the newest, and drop the oldest beyond `most`."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _network_of(scope: Any) -> bytes:
    """Return the address of a request as text; of IPv6 only the network."""
    host = str((scope.get("client") or ("", 0))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.encode()
    if address.version == 6:
        return str(ipaddress.ip_network((host, IPV6_PREFIX_BITS), strict=False)).encode()
    return host.encode()
