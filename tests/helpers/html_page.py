"""Reads a page that atlasc wrote, and sees whether its tags are closed in order."""

from __future__ import annotations

from html.parser import HTMLParser


class HtmlPage(HTMLParser):
    """What a page holds.

    Attributes:
        tags: all of them with their attributes, in order.
        open: tags that are open at the end.
        fetched: what a browser would fetch.
        words: the texts between the tags.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in FETCHING]
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


FETCHING = ("src", "href", "xlink:href")
