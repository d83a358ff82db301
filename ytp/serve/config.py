"""The settings of ``ytp serve``.

A TOML file has a table for each door and the bus's own settings at the top:

    bus = "market.ytp"
    durability = "interval"

    [web]                       # dashboard, UMQ, metrics
    listen = "127.0.0.1:8080"

    [utp]
    listen = "127.0.0.1:6060"

Every value can also come from the environment, ``YTP_SERVE_WEB_LISTEN`` for ``listen`` of ``[web]``, and
``YTP_SERVE_BUS`` for what stands at the top; that wins over the file, and flags win over both. A table that is there
opens its door.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ytp.errors import ConfigError

__all__ = [
    "Durability",
    "FollowConfig",
    "ReplicationConfig",
    "ServeConfig",
    "UtpConfig",
    "WebConfig",
    "YuanConfig",
    "address",
    "load",
]

PREFIX = "YTP_SERVE_"
Durability = Literal["process", "interval", "commit"]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """What every listening door has."""

    listen: str = ""
    cert: str | None = None
    key: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class WebConfig(TlsConfig):
    """Dashboard, UMQ, ``/metrics`` and ``/healthz`` on one port."""

    listen: str = "127.0.0.1:8080"
    token: str | None = None
    read_token: str | None = None  # may look but not write
    dashboard: bool = True


@dataclass(frozen=True, slots=True)
class UtpConfig(TlsConfig):
    listen: str = "127.0.0.1:6060"
    grpc: str | None = None
    passwords: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class YuanConfig(TlsConfig):
    """A host with the bus as one of its terminals; or, with ``url``, only the terminal, at a host elsewhere."""

    listen: str = "127.0.0.1:8888"
    token: str | None = None
    url: str | None = None
    terminal: str = "ytp"


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """For replicas on other hosts. ``name`` is announced through yamz if there is one."""

    listen: str = "127.0.0.1:7070"
    name: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """A bus elsewhere that ours follows: an address such as ``tcp://host:7070``, or a yamz address."""

    source: str = ""
    patterns: tuple[str, ...] = ("/",)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    bus: str = ""
    roll: str | None = None
    keep: str | None = None
    durability: Durability = "process"
    web: WebConfig | None = None
    utp: UtpConfig | None = None
    yuan: YuanConfig | None = None
    replication: ReplicationConfig | None = None
    follow: FollowConfig | None = None


TABLES: dict[str, type] = {
    "web": WebConfig,
    "utp": UtpConfig,
    "yuan": YuanConfig,
    "replication": ReplicationConfig,
    "follow": FollowConfig,
}


def address(text: str, where: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[::1]:port``."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{where}: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> ServeConfig:
    """The settings of all three places; ``flags`` are nested like the file, and None means not given."""
    raw: dict[str, Any] = {}
    if file is not None:
        try:
            raw = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from error
    where = str(file) if file is not None else "settings"
    merge(raw, from_environment(environment))
    merge(raw, flags)
    tables = {name: raw.pop(name) for name in TABLES if name in raw}
    made = {name: fill(TABLES[name], table, f"{where}: [{name}]") for name, table in tables.items()}
    config: ServeConfig = fill(ServeConfig, raw, where, skip=frozenset(TABLES))
    if not config.bus:
        raise ConfigError(f"{where}: 'bus' is missing: which file or directory is to be served?")
    if not made:
        made["web"] = WebConfig()
    return dataclasses.replace(config, **made)


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            inner = into.setdefault(key, {})
            if isinstance(inner, dict):
                merge(inner, value)
        elif value is not None:
            into[key] = value


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        table, _, key = name.partition("_")
        if table in TABLES and key:
            found.setdefault(table, {})[key] = value
        else:
            found[name] = value
    return found


def fill(kind: type, raw: Any, where: str, skip: frozenset[str] = frozenset()) -> Any:
    """An object of a settings class; unknown names and wrong types are errors that say what is known."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: must be a table")
    hints = typing.get_type_hints(kind)
    known = {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.name not in skip}
    strangers = sorted(set(raw) - set(known))
    if strangers:
        raise ConfigError(f"{where}: unknown settings {', '.join(strangers)}; known are {', '.join(known)}")
    return kind(**{name: convert(value, known[name], f"{where}: {name}") for name, value in raw.items()})


def convert(value: Any, hint: Any, where: str) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if bool in kinds and isinstance(value, str):
        if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ConfigError(f"{where}: {value!r} is neither true nor false")
        return value.lower() in ("true", "1", "yes")
    if bool in kinds and isinstance(value, bool):
        return value
    if typing.get_origin(hint) is Literal:
        if value in typing.get_args(hint):
            return value
        raise ConfigError(f"{where}: {value!r} is none of {', '.join(typing.get_args(hint))}")
    if str in kinds and isinstance(value, str):
        return value
    if typing.get_origin(hint) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, list | tuple) and items and all(isinstance(i, str) and i for i in items):
            return tuple(items)
    raise ConfigError(f"{where}: {value!r} does not fit")
