"""``python -m ytp.utp``: the same as ``ytp utp``."""

from ytp.utp.cli import cli

if __name__ == "__main__":
    cli(prog_name="python -m ytp.utp")
