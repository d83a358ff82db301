"""JSON Schema as the protocol uses it: draft 7, unknown keywords ignored, ``format`` not enforced.

Schemas come from other terminals, so compiling or running one must never hurt: regular expressions run
in a linear-time engine (look-around and back-references are refused), nothing is ever fetched, and
references may neither recurse nor fan out beyond a fixed cost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol
from urllib.parse import unquote

from ytp.errors import MissingExtraError

from .errors import BadSchema
from .jsontext import dumps

__all__ = ["Schema", "SchemaCache", "Validator", "compile_schema"]

Schema = dict[str, Any] | bool
"""A JSON Schema as parsed JSON."""

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_COST = 10_000
_MAX_REGEX_BYTES = 1 << 20


class Validator(Protocol):
    """Tells whether a value is valid."""

    def __call__(self, value: Any, /) -> bool: ...


def compile_schema(schema: object) -> Validator:
    """A validator for one schema; raises :class:`BadSchema` for anything unsafe or malformed.

    >>> accepts = compile_schema({"pattern": "^Period/"})
    >>> accepts("Period/Y"), accepts("Quote")
    (True, False)
    """
    if schema is True or schema == {}:
        return _accept_all
    if not isinstance(schema, dict | bool):
        raise BadSchema(f"schema must be an object or a boolean, not {type(schema).__name__}")
    _check_size(schema)
    _check_references(schema)
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingExtraError("JSON Schema needs jsonschema-rs: pip install 'ytp[net]'") from None
    try:
        compiled = jsonschema_rs.Draft7Validator(
            schema,
            validate_formats=False,
            retriever=_refuse_retrieval,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=_MAX_REGEX_BYTES, dfa_size_limit=_MAX_REGEX_BYTES
            ),
        )
    except (ValueError, TypeError) as error:
        raise BadSchema(f"schema does not compile: {_first_line(error)}") from None
    is_valid = compiled.is_valid

    def accepts(value: Any, /) -> bool:
        try:
            return is_valid(value)
        except (ValueError, TypeError):  # lone surrogates and other values without a JSON form
            return False

    return accepts


class SchemaCache:
    """Compiled remote schemas, newest kept; a bad schema is remembered as accepting nothing."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._validators: OrderedDict[bytes, Validator] = OrderedDict()

    def accepts(self, schema: object, value: Any) -> bool:
        """True if ``schema`` is usable and accepts ``value``."""
        if schema == {} or schema is True:
            return True
        try:
            key = dumps(schema)
        except TypeError:
            return False
        validator = self._validators.get(key)
        if validator is None:
            try:
                validator = compile_schema(schema)
            except BadSchema:
                validator = _accept_none
            self._validators[key] = validator
            if len(self._validators) > self._capacity:
                self._validators.popitem(last=False)
        else:
            self._validators.move_to_end(key)
        return validator(value)


def _accept_all(value: Any, /) -> bool:
    return True


def _accept_none(value: Any, /) -> bool:
    return False


def _refuse_retrieval(uri: str) -> Any:
    raise ValueError(f"remote reference {uri!r} is refused")


def _check_size(schema: Schema) -> None:
    try:
        size = len(dumps(schema))
    except TypeError as error:
        raise BadSchema(f"schema is not JSON: {error}") from None
    if size > MAX_SCHEMA_BYTES:
        raise BadSchema(f"schema has {size} bytes, more than {MAX_SCHEMA_BYTES}")


def _check_references(schema: Schema) -> None:
    """Refuse recursion and references whose expansion costs too much (both run for ages in any engine)."""
    costs: dict[str, int] = {}
    open_references: set[str] = set()

    def cost(node: object) -> int:
        if isinstance(node, dict):
            total = 1 + sum(cost(child) for child in node.values())
            reference = node.get("$ref")
            if isinstance(reference, str):
                total += cost_of_reference(reference)
        elif isinstance(node, list):
            total = 1 + sum(cost(child) for child in node)
        else:
            return 1
        if total > MAX_SCHEMA_COST:
            raise BadSchema(f"schema expands to more than {MAX_SCHEMA_COST} parts")
        return total

    def cost_of_reference(reference: str) -> int:
        if reference not in costs:
            if reference in open_references:
                raise BadSchema(f"schema reference {reference!r} is recursive")
            open_references.add(reference)
            costs[reference] = cost(_resolve(schema, reference))
            open_references.remove(reference)
        return costs[reference]

    try:
        cost(schema)
    except RecursionError:
        raise BadSchema("schema is nested too deeply") from None


def _resolve(schema: Schema, reference: str) -> object:
    if reference != "#" and not reference.startswith("#/"):
        raise BadSchema(f"schema reference {reference!r} does not point inside the schema")
    node: object = schema
    for part in reference[2:].split("/") if len(reference) > 1 else []:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise BadSchema(f"schema reference {reference!r} points nowhere")
    return node


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
