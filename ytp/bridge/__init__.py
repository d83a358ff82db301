"""Bridges between a bus and everything else.

Each can be stopped and started again at any time: what it has carried over once is not carried over twice.

    replication/   bus to bus on another host, over ZeroMQ
"""
