"""What cffi compiles from the public C headers; its types are known to the C compiler only."""

from typing import Any

ffi: Any
lib: Any
