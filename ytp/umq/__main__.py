"""``python -m ytp.umq``: the same as ``ytp umq``."""

from ytp.umq.cli import cli

cli(prog_name="python -m ytp.umq")
