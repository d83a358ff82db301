"""UMQ against raw WebSocket echo (the floor), a JSON-RPC library and Socket.IO, measured in turns.

    python -m bench.umq [--quick] [--json FILE] [--loop asyncio|uvloop]

Every contender has a server in a process of its own; all clients are in this one. Each round runs every
contender once, so that a busy machine hurts all alike; ratios are medians of the ratios within rounds.
"""
