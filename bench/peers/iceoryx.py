"""iceoryx2, publish-subscribe in shared memory, busy polling; slow receivers hold senders back."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import iceoryx2 as iox2

from bench.peer import Link, bounce, now

Bytes = iox2.Slice[ctypes.c_uint8]
DEPTH = 64
LARGE = 4096


class Ports:
    """One node; services are named after the address."""

    def __init__(self, link: Link) -> None:
        iox2.set_log_level(iox2.LogLevel.Error)
        self._node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        self._link = link
        self._name = hashlib.sha256(link.address.encode()).hexdigest()[:16]

    def _service(self, channel: str) -> Any:
        return (
            self._node.service_builder(iox2.ServiceName.new(f"bench/{self._name}/{channel}"))
            .publish_subscribe(Bytes)
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(DEPTH)
            .open_or_create()
        )

    def sender(self, channel: str) -> Any:
        return (
            self._service(channel)
            .publisher_builder()
            .initial_max_slice_len(self._link.size)
            .backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )

    def receiver(self, channel: str) -> Any:
        return self._service(channel).subscriber_builder().create()


def send(sender: Any, data: bytes) -> None:
    sample = sender.loan_slice_uninit(len(data))
    ctypes.memmove(sample.payload_ptr, data, len(data))
    sample.assume_init().send()


def receive(receiver: Any) -> Any:
    while True:
        sample = receiver.receive()
        if sample is not None:
            return sample


def take(sample: Any, size: int) -> bytes:
    """A copy as bytes: what other contestants hand out too."""
    return ctypes.string_at(sample.payload_ptr, size)


def ping(link: Link) -> dict[str, float]:
    ports = Ports(link)
    sender, receiver, data = ports.sender("ping"), ports.receiver("pong"), link.payload
    link.ready()

    def once() -> None:
        send(sender, data)
        take(receive(receiver), link.size)

    return bounce(link, once)


def echo(link: Link) -> dict[str, float]:
    ports = Ports(link)
    sender, receiver = ports.sender("pong"), ports.receiver("ping")
    link.ready(listens=True)
    for _ in range(link.count + link.count // 10):
        send(sender, take(receive(receiver), link.size))
    return {}


def source(link: Link) -> dict[str, float]:
    ports = Ports(link)
    sender, data, done = ports.sender("data"), link.payload, ports.receiver("done")
    link.ready()
    start = now()
    for _ in range(link.count):
        send(sender, data)
    end = now()
    receive(done)  # a sender that goes away takes its messages along
    return {"start": start, "end": end}


def sink(link: Link) -> dict[str, float]:
    ports = Ports(link)
    receiver, done = ports.receiver("data"), ports.sender("done")
    link.ready(listens=True)
    total = 0
    for _ in range(link.count):
        sample = receive(receiver)
        if link.size < LARGE:
            total += len(take(sample, link.size))
        else:
            total += ctypes.c_uint8.from_address(sample.payload_ptr + link.size - 1).value
    end = now()
    send(done, b"x")
    return {"end": end, "total": total}
