"""``python -m yamz``: look at a network and try sockets out."""

import sys

try:
    from yamz.cli import cli

    if __name__ == "__main__":
        cli(prog_name="python -m yamz")
except ModuleNotFoundError as missing:
    sys.exit(f"python -m yamz needs {missing.name}: pip install 'ytp[cli,zmq]'")
except KeyboardInterrupt:  # while it was being loaded
    sys.exit(130)
