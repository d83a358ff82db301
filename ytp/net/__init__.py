"""What the network protocols share: queues, limits, clock, TLS and token helpers, carriers, one-port switch.

Nothing in here knows any protocol. A carrier delivers whole messages in order and has one shape
(:class:`~ytp.net.carrier.Carrier`) whether it runs over TCP, WebSocket or memory.
"""
