"""Who may connect, and into which realm. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ytp.errors import ConfigError
from ytp.net import tokens

from .errors import BadKey
from .keys import verify

__all__ = ["Admission", "Credentials"]

MAIN_REALM = "main"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client presents; the token in effect is the last of query, bearer and header that is there."""

    host_id: str = ""
    query_token: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    header_token: str | None = field(default=None, repr=False)
    public_key: str = ""
    signature: str = field(default="", repr=False)

    @classmethod
    def from_http(cls, query: Mapping[str, str], headers: Mapping[str, str]) -> Credentials:
        """Collect from a request."""
        return cls(
            query.get("host_id", ""),
            query.get("host_token"),
            headers.get("Authorization"),
            headers.get("host_token"),
            query.get("public_key", ""),
            query.get("signature", ""),
        )

    @property
    def token(self) -> str:
        """The token in effect."""
        token = self.query_token
        scheme, _, value = (self.authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            token = value.strip()
        if self.header_token is not None:
            token = self.header_token
        return token or ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The rule of one host: a token, tokens per ``host_id``, tenants by their key, or all at once."""

    token: str | None = field(default=None, repr=False)
    hosts: Mapping[str, str] | None = field(default=None, repr=False)
    tenancy: Literal["ED25519"] | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.hosts is not None:
            raise ConfigError("give either one token or tokens per host_id, not both")
        if self.token == "" or (self.hosts is not None and "" in self.hosts.values()):
            raise ConfigError("an empty token protects nothing; leave it out instead")
        if self.tenancy not in (None, "ED25519"):
            raise ConfigError(f"unknown tenancy {self.tenancy!r}; known: 'ED25519'")

    @property
    def authenticated(self) -> bool:
        """True if not everybody is admitted."""
        return self.token is not None or self.hosts is not None or self.tenancy is not None

    def realm_of(self, credentials: Credentials) -> str | None:
        """The realm that the client may enter, or None."""
        realm = MAIN_REALM
        if self.hosts is not None:
            expected = self.hosts.get(credentials.host_id)
            # An unknown host_id takes as long as a wrong token.
            if not tokens.equal(credentials.token, expected or "\0") or expected is None:
                return None
            realm = credentials.host_id
        elif self.token is not None and not tokens.equal(credentials.token, self.token):
            return None
        if self.tenancy is None:
            return realm
        return f"{realm}/{credentials.public_key}" if self._signed(credentials) else None

    def _signed(self, credentials: Credentials) -> bool:
        """Terminals sign the token of their URL, which is the empty text for those without one."""
        try:
            return any(
                verify(text, credentials.signature, credentials.public_key)
                for text in dict.fromkeys((credentials.query_token or "", ""))
            )
        except BadKey:
            return False
