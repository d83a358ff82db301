"""Certificates and keys, by the names of their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ytp.errors import ConfigError

__all__ = ["TlsFiles"]


@dataclass(slots=True, frozen=True)
class TlsFiles:
    """PEM files; gRPC does not take an ``ssl.SSLContext``."""

    cert: str | None = None
    key: str | None = None
    ca: str | None = None

    def read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Certificate chain, private key, authority."""
        try:
            chain, key, ca = (Path(p).read_bytes() if p else None for p in (self.cert, self.key, self.ca))
        except OSError as error:
            raise ConfigError(f"cannot read TLS file: {error}") from error
        return chain, key if key is not None else chain, ca
