"""Path codec, keys, base58: the recorded tables and what they leave open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ytp.yuan.errors import BadKey
from ytp.yuan.keys import HandShakeOffer, KeyPair, _hsalsa20, base58_decode, base58_encode, verify
from ytp.yuan.path import decode_path, encode_path

DATA = Path(__file__).parents[2] / "data" / "yuan"


def table(name: str) -> Any:
    return json.loads((DATA / name).read_text())


PATHS = table("path_codec.json")
KEYS = table("keys_and_signatures.json")


@pytest.mark.parametrize("row", PATHS["encode"], ids=lambda row: row["output"])
def test_case_109_encode_path(row: dict[str, Any]) -> None:
    assert encode_path(*row["input"]) == row["output"]
    assert decode_path(row["output"]) == row["decoded_again"]


@pytest.mark.parametrize("row", PATHS["decode"], ids=lambda row: row["input"])
def test_case_109_decode_path(row: dict[str, Any]) -> None:
    assert decode_path(row["input"]) == row["output"]


def test_items_that_are_not_text_look_like_in_javascript() -> None:
    assert encode_path(True, False, None, 2.5, 3.0, 7) == "true/false/null/2.5/3/7"
    assert encode_path(["a", None, 1.0]) == "a,,1"


@given(st.lists(st.text(), min_size=1).filter(lambda items: not any(i.endswith("\\") for i in items)))
def test_paths_without_trailing_backslashes_come_back(items: list[str]) -> None:
    if not any("\\/" in item for item in items):
        assert decode_path(encode_path(*items)) == items


@pytest.mark.parametrize("row", KEYS["keys"], ids=lambda row: row["public_key"][:6])
def test_case_110_keys_and_signatures(row: dict[str, Any]) -> None:
    pair = KeyPair.from_seed(bytes.fromhex(row["seed_hex"]))
    assert pair.public_key == row["public_key"]
    assert pair.private_key == row["private_key"]
    assert KeyPair.from_text(row["private_key"]) == pair
    for case in row["signatures"]:
        assert pair.sign(case["message"]) == case["signature"]
        assert verify(case["message"], case["signature"], pair.public_key)


@pytest.mark.parametrize("row", KEYS["base58"], ids=lambda row: row["hex"])
def test_case_110_base58(row: dict[str, Any]) -> None:
    assert base58_encode(bytes.fromhex(row["hex"])) == row["base58"]
    assert base58_decode(row["base58"]).hex() == row["hex"]


@given(st.binary(max_size=80))
def test_base58_comes_back(data: bytes) -> None:
    assert base58_decode(base58_encode(data)) == data


def test_case_110_verification_cases() -> None:
    one, two = KeyPair.from_seed(b"\1" * 32), KeyPair.from_seed(b"\2" * 32)
    signature = one.sign("text")
    results: dict[str, object] = {
        "other key": verify("text", signature, two.public_key),
        "other message": verify("texts", signature, one.public_key),
    }
    for case, args in {
        "signature not base58": ("text", "0" + signature[1:], one.public_key),
        "signature too short": ("text", base58_encode(b"\1" * 63), one.public_key),
        "public key too short": ("text", signature, base58_encode(b"\1" * 31)),
    }.items():
        with pytest.raises(BadKey):
            verify(*args)
        results[case] = "throws"
    recorded = {
        row["case"]: "throws" if isinstance(row["result"], str) else row["result"]
        for row in KEYS["verify_cases"]
    }
    assert results == recorded


def test_case_110_private_key_cases() -> None:
    pair = KeyPair.from_seed(b"\1" * 32)
    broken = {
        "63 bytes": base58_encode(b"\1" * 63),
        "public half does not match": base58_encode(pair.seed + b"\7" * 32),
    }
    assert {row["case"] for row in KEYS["private_key_cases"]} == set(broken)
    for text in broken.values():
        with pytest.raises(BadKey):
            KeyPair.from_text(text)
    with pytest.raises(BadKey, match="more than"):
        base58_decode("1" * 129)
    with pytest.raises(BadKey, match="seed has"):
        KeyPair.from_seed(b"")
    assert "seed" not in repr(pair)


def test_key_derivation_gives_the_published_nacl_key() -> None:
    point = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    key = "1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389"
    assert _hsalsa20(point).hex() == key


def test_case_114_handshake_gives_both_sides_one_key_and_seals() -> None:
    client, server = HandShakeOffer(KeyPair.generate()), HandShakeOffer(identity := KeyPair.generate())
    at_server, answer = server.accept(client.request())
    at_client = client.finish(identity.public_key, answer)
    assert at_client.shared_key == at_server.shared_key
    sealed = at_client.seal(b"secret")
    assert b"secret" not in sealed
    assert at_server.open(sealed) == b"secret"
    for broken in (sealed[:-1] + bytes([sealed[-1] ^ 1]), b"", sealed[:10]):
        with pytest.raises(BadKey):
            at_server.open(broken)


def test_case_114_handshake_refuses_forgeries() -> None:
    client, identity = HandShakeOffer(KeyPair.generate()), KeyPair.generate()
    request = client.request()
    other = KeyPair.generate()
    for forged in (
        None,
        {},
        {**request, "public_key": other.public_key},
        {**request, "signature": other.sign("x")},
        {**request, "x25519_public_key": 7},
    ):
        with pytest.raises(BadKey):
            HandShakeOffer(identity).accept(forged)
    zero = base58_encode(bytes(32))
    weak = {"x25519_public_key": zero, "public_key": other.public_key, "signature": other.sign(zero)}
    with pytest.raises(BadKey, match="small order"):
        HandShakeOffer(identity).accept(weak)
    _, answer = HandShakeOffer(identity).accept(request)
    with pytest.raises(BadKey):
        client.finish(other.public_key, answer)
    with pytest.raises(BadKey):
        client.finish(identity.public_key, None)
