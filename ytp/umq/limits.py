"""What one UMQ connection may cost."""

from __future__ import annotations

from dataclasses import dataclass

from ytp.net.limits import MIB, Limits
from ytp.umq.codec import MAX_ATTACHMENTS

__all__ = ["UmqLimits"]


@dataclass(slots=True, frozen=True, kw_only=True)
class UmqLimits(Limits):
    """The limits of every carrier, and those of UMQ. Sizes in bytes, times in seconds.

    >>> UmqLimits(max_requests=10).max_requests
    10
    """

    #: attachments of one message
    max_attachments: int = MAX_ATTACHMENTS
    #: attachments announced by the other side and not yet received
    max_pending_attachments: int = 16_384
    #: bytes of attachments received and not yet read by the application; above it nothing more is read from
    #: the other side, unless we wait for an answer of it (then four times as much)
    max_attachment_bytes: int = 64 * MIB
    #: frames held while the application decides about a hello, and their bytes
    max_held: int = 64
    max_held_bytes: int = 64 * MIB
    #: variables that the other side may set, and the bytes of their names and values
    max_variables: int = 4096
    max_variable_bytes: int = 16 * MIB
    #: requests of the other side served at the same time, and their bytes; more of them wait
    max_requests: int = 1024
    max_request_bytes: int = 16 * MIB
    #: bytes of requests that wait; above it nothing more is read from the other side, unless we wait for
    #: something of it (then requests are refused at four times as much)
    max_waiting_bytes: int = 1 * MIB
    #: how long nothing may be read because nothing that was read before is finished
    stall_timeout: float = 60.0

    @staticmethod
    def hard(limit: int) -> int:
        """Where a limit ends that could not be kept by reading nothing."""
        return 4 * limit
