"""TLS contexts with sound defaults, and the rule where a server may listen."""

from __future__ import annotations

import ipaddress
import os
import ssl

from ytp.errors import ConfigError

__all__ = ["check_listen", "client_context", "is_loopback", "server_context"]

StrPath = str | os.PathLike[str]


def server_context(
    cert: StrPath, key: StrPath | None = None, *, client_ca: StrPath | None = None
) -> ssl.SSLContext:
    """TLS 1.2 or newer with this certificate; with ``client_ca`` clients must show one signed by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, cert, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    *, ca: StrPath | None = None, cert: StrPath | None = None, key: StrPath | None = None
) -> ssl.SSLContext:
    """Verifies servers by ``ca`` (default: the system's authorities); ``cert`` identifies the client."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        _load_ca(context, ca)
    if cert is not None:
        _load_chain(context, cert, key)
    return context


def is_loopback(host: str | None) -> bool:
    """Whether ``host`` is reachable from this machine only. ``None`` and ``""`` mean everywhere."""
    if not host:
        return False
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_listen(host: str | None, *, authenticated: bool, insecure: bool = False) -> None:
    """Refuse to open an unauthenticated server to other machines by accident."""
    if not (is_loopback(host) or authenticated or insecure):
        raise ConfigError(
            f"refusing to listen on {host or 'all interfaces'!r} without authentication: "
            "configure a token or client certificates, listen on 127.0.0.1, or say --insecure"
        )


def _load_chain(context: ssl.SSLContext, cert: StrPath, key: StrPath | None) -> None:
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load certificate {os.fspath(cert)!r}: {error}") from error


def _load_ca(context: ssl.SSLContext, ca: StrPath) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load certificate authority {os.fspath(ca)!r}: {error}") from error
