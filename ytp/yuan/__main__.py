"""``python -m ytp.yuan``."""

from ytp.yuan.cli import cli

if __name__ == "__main__":
    cli(prog_name="python -m ytp.yuan")
