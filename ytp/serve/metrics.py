"""Figures in the text form of Prometheus."""

from __future__ import annotations

from typing import Any

__all__ = ["render"]


def render(bus: Any, doors: list[dict[str, Any]]) -> str:
    stat = bus.stat()
    lines = []

    def gauge(name: str, text: str, values: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} gauge")
        lines.extend(f"{name}{labels} {value:g}" for labels, value in values)

    gauge("ytp_log_bytes", "Bytes of the log that are in use.", [("", stat["reserved_size"])])
    gauge("ytp_file_bytes", "Bytes of the file or files.", [("", stat["file_size"])])
    gauge("ytp_channels", "Channels that were announced.", [("", len(bus.channels))])
    gauge("ytp_peers", "Peers that were announced.", [("", len(bus.peers))])
    gauge(
        "ytp_door_open", "Whether a door is open.", [(label(d), 0 if d.get("errors") else 1) for d in doors]
    )
    sessions = [(label(d), d["sessions"]) for d in doors if "sessions" in d]
    gauge("ytp_door_sessions", "Connections of a door.", sessions)
    queued = [(label(d), d["queued"]) for d in doors if "queued" in d]
    gauge("ytp_door_queued_bytes", "Bytes that wait for slow connections of a door.", queued)
    taken = [(label(d), d["taken"]) for d in doors if "taken" in d]
    gauge("ytp_door_taken", "Messages taken from a bus that is followed.", taken)
    return "\n".join(lines) + "\n"


def label(door: dict[str, Any]) -> str:
    return f'{{door="{door["name"]}"}}'
