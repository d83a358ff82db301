"""A gateway that forwards a namespace to whichever backend has registered for it.

The backend connects to the gateway, so it can live behind a firewall; clients call it through the gateway,
attachments included, and the gateway never looks into what it forwards.

    python examples/umq_router.py
"""

import asyncio

from ytp import umq


def gateway_services() -> umq.Services:
    services = umq.Services()

    @services.method("register")
    def register(request: umq.Request) -> None:
        """Makes the caller the backend of a namespace. Data: its prefix, such as "Account:"."""
        prefix = request.text
        services.route(prefix, request.peer)
        request.peer.on_disconnect(lambda: services.unroute(prefix))

    return services


def backend_services() -> umq.Services:
    services = umq.Services()

    @services.method("getBalance")
    def get_balance(request: umq.Request) -> str:
        """The balance of an account. Data: its number."""
        return f"account {request}: 42"

    return services


async def main() -> None:
    async with await umq.serve(gateway_services()) as gateway:
        url = f"tcp://127.0.0.1:{gateway.port}"
        async with umq.connect(url, services=backend_services()) as backend, umq.connect(url) as client:
            await backend.call("register", "Account:")
            print(await client.call("Account:getBalance", "7"))
            print(await client.discover("Account:"))
            print(await client.discover("Account:getBalance"))


asyncio.run(main())
