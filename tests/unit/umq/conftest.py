"""Helpers of neighbouring folders, importable here as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "net"))
sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
