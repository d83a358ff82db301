"""Bridges between a bus and everything else.

Each can be stopped and started again at any time: what it has carried over once is not carried over twice.

    replication/   bus to bus on another host, over ZeroMQ
    yuan.py        a bus for Yuan terminals, and a remote one copied into ours
    recording.py   what other protocols publish, for a bus
    umq.py         a bus for UMQ peers and browsers, and a remote one copied into ours
"""
