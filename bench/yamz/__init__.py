"""Benchmarks of yamz: ``python -m bench.yamz``."""
