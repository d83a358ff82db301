"""Prometheus text of a host and of a terminal, under the names that dashboards for this protocol expect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .service import DURATION_BUCKETS_MS, ServiceServer

__all__ = ["Tunnel", "counter", "gauge", "service_metrics", "tunnel_metrics"]

Sample = tuple[Mapping[str, str], float]


class Tunnel:
    """What went through one way of reaching others. The protocol counts "bytes" in UTF-16 units."""

    __slots__ = ("received", "received_units", "sent", "sent_units")

    def __init__(self) -> None:
        self.received = self.received_units = self.sent = self.sent_units = 0


def counter(name: str, samples: Iterable[Sample]) -> str:
    """A family of counters."""
    return _family(name, "counter", samples)


def gauge(name: str, samples: Iterable[Sample]) -> str:
    """A family of gauges."""
    return _family(name, "gauge", samples)


def service_metrics(server: ServiceServer) -> str:
    """The serving side of a terminal."""
    total = sum(server.durations.values())
    name = "terminal_request_duration_milliseconds"
    lines = [f"# TYPE {name} histogram"]
    reached = 0
    for limit in DURATION_BUCKETS_MS:
        reached += server.durations[limit]
        lines.append(f'{name}_bucket{{le="{limit}"}} {reached}')
    lines += [
        f'{name}_bucket{{le="+Inf"}} {total}',
        f"{name}_sum {server.duration_sum_ms:g}",
        f"{name}_count {total}",
        "",
    ]
    return "".join(
        (
            counter("terminal_request_received_total", [({}, server.received)]),
            counter(
                "terminal_request_finalized_total",
                [({"code": code}, count) for code, count in sorted(server.finalized.items())],
            ),
            "\n".join(lines),
            gauge("terminal_request_pending_total", [({}, server.pending)]),
            gauge("terminal_request_processing_total", [({}, server.processing)]),
        )
    )


def tunnel_metrics(tunnels: Mapping[str, Tunnel]) -> str:
    """Traffic by tunnel (``WS``, ``WebRTC``)."""
    families = (
        ("terminal_received_bytes_total", "received_units"),
        ("terminal_transmitted_bytes_total", "sent_units"),
        ("terminal_receive_message_total", "received"),
        ("terminal_transmitted_message_total", "sent"),
    )
    return "".join(
        counter(name, [({"tunnel": tunnel}, getattr(seen, field)) for tunnel, seen in tunnels.items()])
        for name, field in families
    )


def _family(name: str, kind: str, samples: Iterable[Sample]) -> str:
    lines = [f"# TYPE {name} {kind}"]
    for labels, value in samples:
        text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        lines.append(f"{name}{{{text}}} {value:g}" if text else f"{name} {value:g}")
    return "\n".join(lines) + "\n"


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
