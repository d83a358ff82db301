"""A web page that shows a bus: rates, tail, history. It speaks UMQ with the server that serves it.

sampler.py   counts what is written, without slowing anybody
volume.py    how many messages there were over time, from the index
offer.py     both, and the state of the doors, as UMQ methods
static/      the page: no build step, nothing from elsewhere
"""

from __future__ import annotations

from ytp.dashboard.offer import Dashboard
from ytp.dashboard.sampler import Sampler

__all__ = ["Dashboard", "Sampler"]
