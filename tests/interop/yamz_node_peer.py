"""A node of yamz.zre that does what it is told on standard input and tells what happens."""

from __future__ import annotations

import json
import os
import sys
import threading

from yamz.zre import Enter, Exit, Join, Leave, Node, Shout, Timing, Whisper, ZreBeacon


def tell(**line: object) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())  # at once, whichever thread


def watch(node: Node) -> None:
    for event in node.events():
        common = {"event": type(event).__name__.upper(), "uuid": event.uuid, "name": event.name}
        match event:
            case Enter():
                tell(**common, headers=dict(event.headers), endpoint=event.endpoint)
            case Exit():
                tell(**common, reason=event.reason.value)
            case Join() | Leave():
                tell(**common, group=event.group)
            case Whisper():
                tell(**common, content=[part.decode() for part in event.content])
            case Shout():
                tell(**common, group=event.group, content=[part.decode() for part in event.content])


def main(name: str, headers: str) -> None:
    discovery = ZreBeacon(interface="auto")
    with Node(name, headers=json.loads(headers), discovery=discovery, timing=Timing(0.5, 2.0, 0.25)) as node:
        tell(event="READY", uuid=node.uuid)
        threading.Thread(target=watch, args=(node,), daemon=True).start()
        for line in sys.stdin:
            command, *rest = json.loads(line)
            if command == "headers":
                node.set_headers(json.loads(rest[0]))
            elif command in ("shout", "whisper"):
                getattr(node, command)(rest[0], *(part.encode() for part in rest[1:]))
            else:
                getattr(node, command)(*rest)


main(*sys.argv[1:])
