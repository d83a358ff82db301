"""``python -m yamz``: look at a network and try sockets out."""

import sys

try:
    from yamz.cli import cli
except ModuleNotFoundError as missing:
    sys.exit(f"python -m yamz needs {missing.name}: pip install 'ytp[cli,zmq]'")

if __name__ == "__main__":
    cli(prog_name="python -m yamz")
