"""The browser client as a file: its types name what it exports, and nothing else. It runs in tests/browser."""

from __future__ import annotations

import re
from pathlib import Path

import ytp.umq

FOLDER = Path(ytp.umq.__file__).parent / "js"


def exported(text: str, declare: str = "") -> set[str]:
    return set(
        re.findall(rf"^export {declare}(?:async )?(?:class|function\*?|const) (\w+)", text, re.MULTILINE)
    )


def test_types_declare_every_export():
    module = exported((FOLDER / "umq.js").read_text("utf-8"))
    assert module == exported((FOLDER / "umq.d.ts").read_text("utf-8"), "declare ")
    assert {"connect", "reconnect", "Peer", "Services", "Payload"} <= module


def test_the_module_depends_on_nothing():
    source = (FOLDER / "umq.js").read_text("utf-8")
    assert not re.search(r"^\s*import\b", source, re.MULTILINE)
    assert "import(" not in source
    assert "http://" not in source
    assert "https://" not in source


def test_public_members_are_declared():
    source, types = ((FOLDER / name).read_text("utf-8") for name in ("umq.js", "umq.d.ts"))
    peer = source[source.index("export class Peer {") : source.index("function deferred")]
    members = set(re.findall(r"^  (?:get |async )?([a-z]\w*)\(?", peer, re.MULTILINE)) - {
        "constructor",
        "get",
        "async",
    }
    declared = types[types.index("class Peer {") : types.index("export declare function connect")]
    missing = [name for name in sorted(members) if not re.search(rf"\b{name}\b", declared)]
    assert missing == []
    assert {"call", "subscribe", "publish", "discover", "drain"} <= members
