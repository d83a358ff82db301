"""What terminals tell about themselves, read with distrust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ServiceInfo", "TerminalInfo"]


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service that some terminal offers."""

    service_id: str
    method: str
    schema: Any = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``serviceInfo``."""
        return {"service_id": self.service_id, "method": self.method, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class TerminalInfo:
    """One entry of the host's list. ``raw`` is the JSON as it came, unknown fields included."""

    terminal_id: str
    name: str = ""
    services: Mapping[str, ServiceInfo] = field(default_factory=dict)
    channel_schemas: tuple[Any, ...] = ()
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    enable_webrtc: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0
    updated_at: float = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, value: object) -> TerminalInfo:
        """Read a peer's info: only ``terminal_id`` is required, malformed parts are left out."""
        if not isinstance(value, dict):
            raise ValueError(f"terminal info is {type(value).__name__}, not an object")
        terminal_id = value.get("terminal_id")
        if not isinstance(terminal_id, str) or not terminal_id:
            raise ValueError("terminal info: terminal_id is missing or not a text")
        name = value.get("name")
        schemas = value.get("channelIdSchemas")
        return cls(
            terminal_id,
            name if isinstance(name, str) else "",
            _services(value.get("serviceInfo")),
            tuple(schemas) if isinstance(schemas, list) else (),
            _subscriptions(value.get("subscriptions")),
            value.get("enable_WebRTC") is True,
            {key: tag for key, tag in _mapping(value.get("tags")) if isinstance(tag, str)},
            _number(value.get("created_at")),
            _number(value.get("updated_at")),
            value,
        )


def _mapping(value: object) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _services(value: object) -> dict[str, ServiceInfo]:
    services = {}
    for service_id, entry in _mapping(value):
        method = entry.get("method") if isinstance(entry, dict) else None
        if isinstance(method, str) and method:
            services[service_id] = ServiceInfo(service_id, method, entry.get("schema", {}))
    return services


def _subscriptions(value: object) -> dict[str, frozenset[str]]:
    return {
        provider: frozenset(channel for channel in channels if isinstance(channel, str))
        for provider, channels in _mapping(value)
        if isinstance(channels, list)
    }


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
