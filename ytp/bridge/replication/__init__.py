"""A bus that follows another one on another host.

    wire.py      requests and replies as frames
    marks.py     what a replica writes into its own log to know where it is and where messages came from
    source.py    answers requests from a log; no sockets
    replica.py   takes replies into a log; no sockets
    following.py what to ask a source next, and what to do with its reply; no sockets
    net.py       both over ZeroMQ
    sockets.py   sockets at an address, or announced and found through yamz

The replica asks, the source answers from the log and remembers nothing. Each batch is one transaction in the replica's
log together with a mark that says how far it came, so a replica that is killed anywhere goes on without a gap and
without a duplicate. The mark also names the log in which each message was first written: a log never takes back its own
messages, and takes those of others once, whatever the ways they come. For this a message has a number: its place in the
order of its log. Positions would not do: who reserves first may commit last. On every way the messages of one channel
of one log come in their order, so the largest number of a channel says what is known of it.
"""

from __future__ import annotations

from ytp.bridge.replication.net import Follower, SourceServer
from ytp.bridge.replication.replica import Replica
from ytp.bridge.replication.source import Source

__all__ = ["Follower", "Replica", "Source", "SourceServer"]
