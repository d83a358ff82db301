"""JSON Schema as the protocol means it, and schemas that are meant to hurt."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ytp.yuan.errors import BadSchema
from ytp.yuan.schema import MAX_SCHEMA_BYTES, SchemaCache, compile_schema


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"format": "email"}, "not an address", True),
        ({"format": "date-time"}, "yesterday", True),
        ({"unknownKeyword": 7}, {}, True),
        ({"type": "integer", "unknownKeyword": {"type": "x"}}, 7, True),
        ({"pattern": "^\\d+$"}, "42", True),
        ({"pattern": "^\\d+$"}, "\u0664\u0662", False),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "b"}, 7, True),
        ({"pattern": "^\\p{L}+$"}, "\u00e9", True),
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, 1.5, False),
        ({"const": 1}, True, False),
        ({"const": True}, 1, False),
        ({"enum": [0]}, False, False),
        ({"const": 1}, 1.0, True),
        (True, None, True),
        (False, None, False),
        ({}, object, True),
        ({"definitions": {"n": {"type": "number"}}, "items": {"$ref": "#/definitions/n"}}, [1, 2], True),
        ({"definitions": {"a/b": {"type": "number"}}, "$ref": "#/definitions/a~1b"}, "x", False),
        ({"anyOf": [{"type": "null"}, {"type": "string"}], "items": [{"$ref": "#/anyOf/1"}]}, "x", True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}, 7, False),
        ({"type": "string"}, "\ud800", False),
    ],
)
def test_case_111_verdicts(schema: Any, value: Any, valid: bool) -> None:
    assert compile_schema(schema)(value) is valid
    assert SchemaCache().accepts(schema, value) is valid


CATASTROPHIC = [
    {"pattern": "(a+)+$"},
    {"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"},
    {"pattern": "(x+x+)+y"},
    {"patternProperties": {"^(a|aa)+$": {}}},
]


@pytest.mark.parametrize("schema", CATASTROPHIC)
def test_case_112_catastrophic_patterns_take_linear_time(schema: dict[str, Any]) -> None:
    accepts = compile_schema(schema)
    text = "a" * 50_000 + "!"
    spent = []
    for size in (500, 50_000):
        value: Any = {text[-size:]: 1} if "patternProperties" in schema else text[-size:]
        began = time.process_time()
        accepts(value)
        spent.append(time.process_time() - began)
    # A backtracking engine needs 2**500 steps for the shorter one: getting here is the test.
    assert len(spent) == 2


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"pattern": "("}, "does not compile"),
        ({"pattern": "(?=x)"}, "does not compile"),
        ({"pattern": "(a)\\1"}, "does not compile"),
        ({"pattern": "(?:a{1000}){1000}"}, "does not compile"),
        ({"type": 7}, "does not compile"),
        (7, "must be an object or a boolean"),
        (None, "must be an object or a boolean"),
        ([], "must be an object or a boolean"),
        ({"$ref": "http://example.com/schema"}, "does not point inside"),
        ({"$ref": "file:///etc/passwd"}, "does not point inside"),
        ({"$ref": "#"}, "recursive"),
        ({"items": {"$ref": "#"}}, "recursive"),
        ({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, "recursive"),
        ({"$ref": "#/nowhere"}, "points nowhere"),
        ({"a": [1], "$ref": "#/a/7"}, "points nowhere"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "more than"),
        ({"x": {1, 2}}, "not JSON"),
    ],
)
def test_case_112_schemas_that_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(BadSchema, match=reason):
        compile_schema(schema)
    assert SchemaCache().accepts(schema, {}) is False


def test_case_112_references_that_multiply_are_refused() -> None:
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/l{n + 1}"}] * 10} for n in range(10)}
    with pytest.raises(BadSchema, match="expands to more than"):
        compile_schema({**levels, "l10": {}, "$ref": "#/l0"})


def test_case_112_nesting_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"not": schema}
    with pytest.raises(BadSchema):
        compile_schema(schema)


def test_the_cache_is_bounded_and_remembers_the_bad_ones() -> None:
    cache = SchemaCache(capacity=3)
    for number in range(10):
        assert cache.accepts({"const": number}, number)
    assert len(cache._validators) == 3
    assert not cache.accepts({"pattern": "("}, "x")
    assert not cache.accepts({"pattern": "("}, "x")
    assert cache.accepts({"const": 9}, 9)
