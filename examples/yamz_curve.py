"""Data sockets that only those with a known key can use: CURVE with pyzmq's authenticator.

Discovery stays open (everybody on the network sees names and addresses), the data does not: the
offering socket proves who it is with its key pair, and admits only the public keys in a folder.

Run it: ``python examples/yamz_curve.py``.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

import yamz
from yamz.zre import Memory

Keys = dict[zmq.SocketOption, int | bytes]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        admitted = folder / "admitted"
        admitted.mkdir()
        server_public, server_secret = zmq.auth.load_certificate(
            zmq.auth.create_certificates(folder, "source")[1]
        )
        keys = {}
        for who in ("friend", "stranger"):
            public_file, secret_file = zmq.auth.create_certificates(folder, who)
            keys[who] = zmq.auth.load_certificate(secret_file)
            if who == "friend":
                Path(public_file).rename(admitted / "friend.key")

        context = zmq.Context()
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve(domain="*", location=str(admitted))
        try:
            with Memory() as network, yamz.Server("app", context=context, discovery=network) as server:
                run(server, server_public, server_secret, keys)
        finally:
            authenticator.stop()
            context.term()


def run(
    server: yamz.Server,
    server_public: bytes,
    server_secret: bytes | None,
    keys: dict[str, tuple[bytes, bytes | None]],
) -> None:
    assert server_secret
    with contextlib.ExitStack() as closing:
        source = closing.enter_context(server.client("source"))
        # Options are set before the socket is bound: nobody gets in without a key.
        own: Keys = {
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_PUBLICKEY: server_public,
            zmq.CURVE_SECRETKEY: server_secret,
        }
        out = source.port("out", zmq.PUSH, bind="tcp://*:*", options=own)
        source.ready()
        server.online()
        for partners, (who, (public, secret)) in enumerate(keys.items(), start=1):
            assert secret
            sink = closing.enter_context(server.client(who))
            own = {
                zmq.CURVE_SERVERKEY: server_public,
                zmq.CURVE_PUBLICKEY: public,
                zmq.CURVE_SECRETKEY: secret,
            }
            into = sink.port("in", zmq.PULL, connect="yamz://app/out", options=own)
            sink.ready()
            assert sink.wait_linked("in", timeout=10)  # found, and told to connect
            wait = 10 if who == "friend" else 1
            admitted = source.wait_linked("out", partners, timeout=wait)  # the handshake succeeded
            print(f"{who}: {'admitted' if admitted else 'refused'}")
            assert admitted == (who == "friend")
            if admitted:
                out.send(b"only for friends")
                print("  received", into.recv())


if __name__ == "__main__":
    main()
