"""All pages of a list as one asynchronous iterator."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

ItemT = TypeVar("ItemT")


class Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


PageT = TypeVar("PageT", bound=Page)


async def all_items(
    fetch: Callable[[str], Awaitable[PageT]], items_of: Callable[[PageT], Iterable[ItemT]]
) -> AsyncIterator[ItemT]:
    """The items of every page, fetched as they are asked for; nothing is held between pages."""
    token = ""
    while True:
        page = await fetch(token)
        for item in items_of(page):
            yield item
        token = page.next_page_token
        if not token:
            return
