"""One process that opens a bus to everybody: dashboard, UMQ, uTP, Yuan, replication, metrics.

config.py    the settings, from a TOML file, the environment and flags
doors.py     each way in, with one shape: start, stop, state
metrics.py   figures for Prometheus
server.py    the bus and its doors together
"""

from __future__ import annotations

from ytp.serve.config import ServeConfig, load
from ytp.serve.server import Server

__all__ = ["ServeConfig", "Server", "load"]
