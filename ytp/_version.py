"""The one place that holds the version; setup, C headers and docs are checked against it."""

__version__ = "0.1.0"
