"""``python -m yamz``: look at a network and try sockets out."""

from yamz.cli import cli

if __name__ == "__main__":
    cli(prog_name="python -m yamz")
