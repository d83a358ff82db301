"""The public names are frozen: to add one is a decision, to lose one breaks a promise of the manual."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import yamz
import ytp

ROOT = Path(__file__).resolve().parents[2]

NAMES = {
    "ytp": """
        Bus Channel ClosedError Columns ConfigError CorruptError Directory DivergenceError FormatError
        InvalidNameError LeftBehindError ListClosedError Message MissingExtraError NoSpaceError
        NotFoundError Peer ProtocolError ReadOnlyError Subscription TooLargeError Transaction TruncatedError
        WaitTimeout YtpError __version__ backend open salvage
    """,
    "ytp.names": """
        UTP_RECEIPTS umq_channel umq_topic utp_channel utp_topic yuan_channel yuan_channel_id
    """,
    "ytp.roll": """
        RollingBus RollingSubscription open_rolling parse_age parse_size
    """,
    "ytp.spark": """
        count find_java jar read register session
    """,
    "ytp.umq": """
        Attachment AttachmentError CallException Callback ErrorCode ExecutionError GlobalError HighWater
        Listing Payload Peer PeerDisconnected Policy Publication Publisher Pusher Request Role Server
        Services Subscription UmqError UmqLimits connect require_token serve split work
    """,
    "ytp.utp": """
        BatchLimits BlockingClient Broker BrokerOptions Client ClientOptions ConnectRefused ConnectionLost
        DeliveryMode ErrorCode Incoming MalformedPacket PasswordFile ProtocolViolation RequestError
        ReturnCode TlsFiles UtpError
    """,
    "ytp.yuan": """
        AuthFailed BadKey BadSchema BodyCheck ChannelStream Disconnected HOST_ID Host HostLimits KeyPair
        MISSING Message NoProvider ProvidedChannel ProvidedService RealmOptions RequestTimeout Response
        SealedLink ServiceFailed ServiceInfo ServiceStream StreamLimits StreamOverflow Terminal TerminalInfo
        TerminalTimeouts WebRtcOptions YuanError decode_path encode_path
    """,
    "ytp.bridge.replication": """
        Follower Replica Source SourceServer
    """,
    "ytp.bridge.umq": """
        add_bus follow
    """,
    "ytp.bridge.yuan": """
        BusTerminal follow
    """,
    "ytp.serve": """
        ServeConfig Server load
    """,
    "ytp.dashboard": """
        Dashboard Sampler
    """,
    "yamz": """
        Action Address AddressError Category Client ClientConfig CodecError ConfigError Mode NotOnline
        PatternError Patterns Peer PeerUnknown PortConfig PortError Reply RequestRefused Selector Server
        ServerConfig Target Terminated ThreadError YamzError __version__ aio parse zre
    """,
    "yamz.aio": """
        Client Server
    """,
    "yamz.zre": """
        Discovery Enter Evasive Event Exit ExitReason Join Leave Limits Memory Node PeerInfo Shout Silent
        Static Timing Whisper ZreBeacon ZreGossip
    """,
}


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_are_those_that_were_promised(module: str) -> None:
    if module == "ytp.spark":
        pytest.importorskip("pyspark", reason="needs pyspark")
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == NAMES[module].split()
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None


def test_the_manual_lists_every_public_name_and_no_other() -> None:
    listed: dict[str, list[str]] = {}
    for line in (ROOT / "docs/reference.md").read_text().splitlines():
        if line.startswith("## "):
            names = listed.setdefault(line.removeprefix("## "), [])
        elif found := re.match(r"\| `(\w+)` \|", line):
            names.append(found[1])
    assert {module: sorted(names) for module, names in listed.items()} == {
        module: names.split() for module, names in NAMES.items()
    }


def modules() -> list[str]:
    found = []
    for package in (ytp, yamz):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):  # those run
                found.append(info.name)
    return found


@pytest.mark.parametrize("name", modules())
def test_what_a_module_exports_exists(name: str) -> None:
    """Also of the modules that are not public: a stale ``__all__`` breaks ``from ... import *`` and readers."""
    try:
        loaded = importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] not in ("ytp", "yamz"):
            pytest.skip(f"needs {error.name}")
        raise
    for exported in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, exported), exported
