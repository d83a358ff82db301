"""yamz: ZeroMQ sockets that find each other by name, path and attributes."""

__version__ = "0.1.0"
__all__ = ["__version__"]
