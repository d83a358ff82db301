"""Yuan: programs behind firewalls offer services and live channels to each other through one small host.

:class:`Host` is the server, :class:`Terminal` everything else. The machines behind them (``realm``, ``core``)
do no I/O and keep no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .codec import HOST_ID, MISSING, Message, Response
    from .errors import (
        AuthFailed,
        BadKey,
        BadSchema,
        Disconnected,
        NoProvider,
        RequestTimeout,
        ServiceFailed,
        StreamOverflow,
        YuanError,
    )
    from .host import Host, HostLimits
    from .info import ServiceInfo, TerminalInfo
    from .keys import KeyPair, SealedLink
    from .path import decode_path, encode_path
    from .realm import BodyCheck, RealmOptions
    from .streams import ChannelStream, ServiceStream, StreamLimits
    from .terminal import ProvidedChannel, ProvidedService, Terminal, TerminalTimeouts
    from .webrtc import WebRtcOptions

__all__ = [
    "HOST_ID",
    "MISSING",
    "AuthFailed",
    "BadKey",
    "BadSchema",
    "BodyCheck",
    "ChannelStream",
    "Disconnected",
    "Host",
    "HostLimits",
    "KeyPair",
    "Message",
    "NoProvider",
    "ProvidedChannel",
    "ProvidedService",
    "RealmOptions",
    "RequestTimeout",
    "Response",
    "SealedLink",
    "ServiceFailed",
    "ServiceInfo",
    "ServiceStream",
    "StreamLimits",
    "StreamOverflow",
    "Terminal",
    "TerminalInfo",
    "TerminalTimeouts",
    "WebRtcOptions",
    "YuanError",
    "decode_path",
    "encode_path",
]

# Loaded on first use, so that the command line can show its help without aiohttp.
_HOME = {
    "codec": ("HOST_ID", "MISSING", "Message", "Response"),
    "errors": (
        "AuthFailed", "BadKey", "BadSchema", "Disconnected", "NoProvider", "RequestTimeout", "ServiceFailed",
        "StreamOverflow", "YuanError",
    ),
    "host": ("Host", "HostLimits"),
    "info": ("ServiceInfo", "TerminalInfo"),
    "keys": ("KeyPair", "SealedLink"),
    "path": ("decode_path", "encode_path"),
    "realm": ("BodyCheck", "RealmOptions"),
    "streams": ("ChannelStream", "ServiceStream", "StreamLimits"),
    "terminal": ("ProvidedChannel", "ProvidedService", "Terminal", "TerminalTimeouts"),
    "webrtc": ("WebRtcOptions",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from ytp.errors import MissingExtraError

    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("ytp"):
            raise
        raise MissingExtraError(f"Yuan needs {missing.name}: pip install 'ytp[net]'") from missing


def __dir__() -> list[str]:
    return sorted(__all__)
