"""What a broker promises and where it draws the line."""

from __future__ import annotations

from dataclasses import dataclass

from ytp.utp.codec import MAX_PACKET

__all__ = ["BrokerOptions"]


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerOptions:
    """Limits and switches of a broker. Times in seconds, sizes in bytes; every default is safe."""

    # --- who may come in
    allow_insecure: bool = True
    """Accept clients that choose to work without security keys."""
    allow_any_id: bool = False
    """Accept client ids of any form from insecure clients; they share the broker's own contract."""
    offer_client_ids: bool = True
    """Offer a new client id to who comes without a good one."""
    keygen_primary_only: bool = False
    """Only primary clients may ask for security keys."""
    origins: tuple[str, ...] = ()
    """Web pages that may connect, such as ``https://example.org``, beside those of this host; ``*`` for all."""
    max_topics_size: int = 256 * 1024 * 1024
    """Memory that the names of all topics may take, about."""
    max_connections: int = 10_000
    connect_timeout: float = 10.0

    # --- sizes
    max_packet: int = MAX_PACKET
    max_requests: int = 1000
    """Subscriptions or relay requests in one packet."""
    max_messages: int = 10_000
    """Messages in one PUBLISH."""
    max_subscriptions: int = 10_000
    """Per session."""

    # --- delivery
    inflight: int = 100
    """Packets on their way to one session, unanswered."""
    inflight_bytes: int = 8 * 1024 * 1024
    queue_messages: int = 1000
    """Messages held in memory for one session; what is beyond stays in the log and is read later."""
    queue_bytes: int = 8 * 1024 * 1024
    write_buffer: int = 1024 * 1024
    """Unsent bytes of a connection above which nothing more is given to it."""
    retry: float = 20.0
    """A packet without an answer is repeated after this time."""
    stall: float = 30.0
    """A connection that takes no bytes for this long is closed; its session is kept."""
    offline_express: int = 10_000
    """Express messages kept for a session that is away; the oldest beyond are dropped and counted."""

    # --- time
    session_expiry: float = 24 * 3600.0
    duplicate_window: float = 600.0
    duplicate_count: int = 1024
    history: float = 7 * 24 * 3600.0
    """How far back RELAY looks."""
    relay_limit: int = 1000
    """The newest messages that one relay request gets."""

    # --- durability
    sync: bool = False
    """Acknowledge only what is on the disk. Without it, what a crash of the process leaves intact."""

    # --- rates, per connection; None: no limit
    messages_per_second: float | None = None
    bytes_per_second: float | None = None

    # --- as the shipped server does it
    legacy_keys: bool = False
    """Issue and accept the unsigned security keys of the shipped server. Anybody can forge them."""
    read_key_publishes: bool = False
    """Let a security key with the read permission publish as well, whatever its write permission."""
    relay_newest_first: bool = False
