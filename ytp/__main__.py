"""``python -m ytp`` is the ``ytp`` command."""

from ytp.cli import main

if __name__ == "__main__":
    main()
