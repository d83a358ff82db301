"""What a peer offers: methods by exact name, routes by prefix. One table can serve many peers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ytp.umq.codec import check_identifier
from ytp.umq.payload import AttachmentSource, Payload

if TYPE_CHECKING:
    from ytp.umq.peer import Peer

__all__ = ["Chooser", "Handler", "Method", "Request", "Route", "Services"]


class Request(Payload):
    """A call as its handler sees it: the text (it *is* a ``str``), ``attachments``, and who wants what."""

    __slots__ = ("id", "name", "peer")

    #: the request id that the caller chose
    id: str
    #: the method as called, with its whole namespace
    name: str
    #: the peer that calls
    peer: Peer

    @classmethod
    def make(
        cls, text: str, attachments: tuple[AttachmentSource, ...], name: str, id: str, peer: Peer
    ) -> Request:
        self = str.__new__(cls, text)
        self.attachments = attachments
        self.name = name
        self.id = id
        self.peer = peer
        return self


Handler: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]
Chooser: TypeAlias = Callable[[Request], "Peer | Awaitable[Peer | None] | None"]
H = TypeVar("H", bound=Callable[..., object])


@dataclass(slots=True, frozen=True)
class Method:
    handler: Handler
    doc: str
    #: whether the handler is to be run as a task
    is_async: bool


@dataclass(slots=True, frozen=True)
class Route:
    """Everything that begins with ``prefix``: forwarded to a peer, or given to a handler."""

    prefix: str
    target: Peer | Chooser | None = None
    handler: Method | None = None
    discover: Method | None = None


class Services:
    """A table of methods and routes, changeable at any time.

    >>> services = Services()
    >>> @services.method("shout")
    ... def shout(request):
    ...     '''Says it louder.'''
    ...     return request.upper()
    >>> services.listing()
    (['shout'], [])

    With a ``parent``, whatever is not found here is looked up there.
    """

    def __init__(self, parent: Services | None = None) -> None:
        self._parent = parent
        self._methods: dict[str, Method] = {}
        self._routes: dict[str, Route] = {}
        # Lookup cuts the name at these lengths only: names come from the network and may be huge.
        self._route_lengths: tuple[int, ...] = ()

    def method(self, name: str, *, doc: str | None = None) -> Callable[[H], H]:
        """Decorator: serve ``name`` by this function, sync or async, which takes a :class:`Request`.

        It returns text, a :class:`Payload`, or None for an empty result. ``doc`` defaults to its docstring.
        A sync function runs in the event loop: it must not block.
        """

        def register(handler: H) -> H:
            self.add(name, handler, doc=doc)  # type: ignore[arg-type]
            return handler

        return register

    def add(self, name: str, handler: Handler, *, doc: str | None = None) -> None:
        """Like :meth:`method`, for functions at hand. Replaces what had the name."""
        check_identifier("method name", name)
        self._methods[name] = _method(handler, doc)

    def remove(self, name: str) -> None:
        """Stop serving ``name``; ``KeyError`` when it was not served."""
        del self._methods[name]

    def route(
        self,
        prefix: str,
        target: Peer | Chooser | None = None,
        *,
        handler: Handler | None = None,
        discover: Handler | None = None,
    ) -> None:
        """Send every name that begins with ``prefix`` elsewhere. Exact methods win, then the longest prefix.

        ``target`` is a peer, or a function that chooses one for the request (None = nobody there); the prefix
        is removed, discovery is forwarded as well. Or give a ``handler``, which sees full names, and a
        ``discover`` handler, which sees queries without the prefix and returns content.
        """
        check_identifier("route", prefix)
        if (target is None) == (handler is None):
            raise ValueError("a route needs a target or a handler, and not both")
        self._routes[prefix] = Route(
            prefix,
            target,
            _method(handler, None) if handler else None,
            _method(discover, None) if discover else None,
        )
        self._count_lengths()

    def unroute(self, prefix: str) -> None:
        """Forget a route; ``KeyError`` when there is none."""
        del self._routes[prefix]
        self._count_lengths()

    def find(self, name: str) -> Method | None:
        """The method of exactly this name."""
        table: Services | None = self
        while table is not None:
            method = table._methods.get(name)
            if method is not None:
                return method
            table = table._parent
        return None

    def find_route(self, name: str) -> Route | None:
        """The route with the longest prefix of ``name``."""
        found = None
        for length in self._route_lengths:
            found = self._routes.get(name[:length]) if length <= len(name) else None
            if found is not None:
                break
        inherited = self._parent.find_route(name) if self._parent is not None else None
        if found is None or (inherited is not None and len(inherited.prefix) > len(found.prefix)):
            return inherited
        return found

    def listing(self) -> tuple[list[str], list[str]]:
        """Names of methods and of routes, in order of registration."""
        tables = list(self._tables())
        methods = dict.fromkeys(name for table in tables for name in table._methods)
        routes = dict.fromkeys(name for table in tables for name in table._routes)
        return list(methods), list(routes)

    def _tables(self) -> Iterator[Services]:
        if self._parent is not None:
            yield from self._parent._tables()
        yield self

    def _count_lengths(self) -> None:
        self._route_lengths = tuple(sorted({len(prefix) for prefix in self._routes}, reverse=True))


def _method(handler: Handler, doc: str | None) -> Method:
    if doc is None:
        doc = inspect.getdoc(handler) or ""
    call = getattr(handler, "__call__", None)  # noqa: B004 - objects with an async __call__ are handlers, too
    return Method(handler, doc, inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call))
