"""Channel names and the names of each protocol are each other's inverse."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ytp import names
from ytp.errors import InvalidNameError

# Characters that any of the mappings treats specially, much more often than chance would bring them.
SPICE = st.text(st.sampled_from(list("%25EeAaF3C0-./*?:\\\nutp0é\t ")), max_size=24)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)
FOREIGN = SPICE | ANY
CHANNELS = (SPICE | ANY).filter(lambda name: "\0" not in name)
TOPICS = st.lists(
    (SPICE | ANY).map(lambda t: re.sub(r"[.*?/\0]", "", t)).filter(bool), min_size=1, max_size=5
).map(".".join)


@pytest.mark.parametrize(
    ("channel", "topic"),
    [
        ("md/IBM", "md.IBM"),
        ("md/BRK.B", "md.BRK%2EB"),
        ("a*/b?", "a%2A.b%3F"),
        ("a/%2E", "a.%252E"),
        ("a/%252E", "a.%25252E"),
        ("50%/x", "50%.x"),
        ("", "%--"),
        ("a//b/", "a.%--.b.%--"),
        ("a/%--", "a.%25--"),
        ("a/...", "a.%2E%2E%2E"),
    ],
)
def test_utp_examples(channel: str, topic: str) -> None:
    assert names.utp_topic(channel) == (topic, None)
    assert names.utp_channel(topic) == channel


def test_other_contracts_have_channels_of_their_own() -> None:
    assert names.utp_channel("a.b", 0x10A38D27) == "utp:10a38d27/a/b"
    assert names.utp_topic("utp:10a38d27/a/b") == ("a.b", 0x10A38D27)
    # A topic of the home contract that looks like such a channel does not become one.
    assert names.utp_channel("utp:10a38d27.a.b") == "utp::10a38d27/a/b"
    assert names.utp_topic("utp::10a38d27/a/b") == ("utp:10a38d27.a.b", None)
    assert names.utp_channel("utp:receipts") != names.UTP_RECEIPTS


@pytest.mark.parametrize("channel", [names.UTP_RECEIPTS, "utp:receipts/x", "utp:10a38d27"])
def test_channels_without_a_topic(channel: str) -> None:
    with pytest.raises(InvalidNameError, match="utp:"):
        names.utp_topic(channel)


@given(CHANNELS)
@example("utp:::12345678/x")
@example("utp:12345678/")
def test_every_channel_survives_utp(channel: str) -> None:
    try:
        topic, contract = names.utp_topic(channel)
    except InvalidNameError:
        assert channel.startswith("utp:")
        return
    assert not re.search(r"[*?/\0]|\.\.|^\.|\.$", topic)
    assert topic
    assert names.utp_channel(topic, contract) == channel


@given(TOPICS, st.none() | st.integers(0, 2**32 - 1))
@example("%2541", None)
@example("%", None)
def test_every_topic_survives_the_bus(topic: str, contract: int | None) -> None:
    assert names.utp_topic(names.utp_channel(topic, contract)) == (topic, contract)


@given(CHANNELS)
def test_every_channel_survives_umq(channel: str) -> None:
    topic = names.umq_topic(channel)
    assert topic
    assert "\n" not in topic
    assert ":" not in topic
    assert names.umq_channel(topic) == channel


@given(FOREIGN.map(lambda t: re.sub(r"[\n:]", "", t)).filter(bool))
def test_every_umq_topic_survives_the_bus(topic: str) -> None:
    channel = names.umq_channel(topic)
    assert "\0" not in channel
    assert names.umq_topic(channel) == topic


@given(CHANNELS)
@example("a\\/b")
@example("a%5C/b")
def test_every_channel_survives_yuan(channel: str) -> None:
    assert names.yuan_channel(names.yuan_channel_id(channel)) == channel


@given(FOREIGN)
@example("a\\/b/c")
@example("a%5C/b")
def test_every_yuan_id_survives_the_bus(channel_id: str) -> None:
    channel = names.yuan_channel(channel_id)
    assert "\0" not in channel
    assert names.yuan_channel_id(channel) == channel_id


def test_yuan_items_are_the_levels() -> None:
    assert names.yuan_channel_id("Period/BTC%2FUSD/60") == "Period/BTC\\/USD/60"
    assert names.yuan_channel("Period/BTC\\/USD/60") == "Period/BTC%2FUSD/60"
