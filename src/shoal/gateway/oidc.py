"""Bearer tokens of an OpenID provider, for operators and people who sign in elsewhere.

A token is taken when its signature, issuer, audience and time are right and it says which space and
who: claims `shoal_space`, and `shoal_kind` "operator" or "person" with `shoal_person`. Devices and
applications keep keys of their own.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from shoal.core.errors import InputError
from shoal.gateway.keys import OPERATOR, PERSON, Caller
from shoal.gateway.problems import Problem
from shoal.gateway.settings import Settings

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA", "PS256")  # none symmetric
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Provider:
    """The issuer whose tokens count."""

    def __init__(self, settings: Settings) -> None:
        if not (settings.oidc_audience and settings.oidc_jwks):
            raise InputError("oidc_issuer is given; oidc_audience and oidc_jwks are needed too")
        self._issuer, self._audience = settings.oidc_issuer, settings.oidc_audience
        self._jwks = settings.oidc_jwks

    @cached_property
    def _keys(self) -> Any:
        from jwt import PyJWKClient

        return PyJWKClient(self._jwks, cache_keys=True, timeout=5)

    def caller(self, token: str) -> Caller:
        """Who a token stands for; refused alike whatever is wrong with it."""
        import jwt

        wrong = Problem(
            401, "the key is missing or not valid", headers={"WWW-Authenticate": "Bearer"}
        )
        try:
            claims = jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token).key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError:
            raise wrong from None
        space, kind = claims.get("shoal_space"), claims.get("shoal_kind")
        person = claims.get("shoal_person", "") if kind == PERSON else ""
        names = [space, person] if kind == PERSON else [space]
        if kind not in (OPERATOR, PERSON):
            raise wrong
        if not all(isinstance(each, str) and NAME.fullmatch(each) for each in names):
            raise wrong
        return Caller(str(space), f"oidc:{claims['sub']}"[:128], kind, person)


def looks_like_token(text: str) -> bool:
    """Whether a bearer text is a signed token, not a key of this service."""
    return text.count(".") == 2 and text.startswith("ey")
