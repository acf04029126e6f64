"""Two rules for the built site: its links lead somewhere, and it loads nothing from elsewhere.

    python docs/check.py build/docs

Sphinx checks the links that it resolves; this reads the pages as a browser would.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src")}
NAMED_ONLY = {"canonical", "author", "license", "next", "prev", "index", "search", "genindex"}


class Page(HTMLParser):
    """The places of a page, and what it links to or loads."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for every tag."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and set(given.get("rel", "").split()) & NAMED_ONLY:
            return
        self.loads += [given[name] for kind, name in LOADED if kind == tag and name in given]


def read(file: Path) -> Page:
    """A page, parsed."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def problems(folder: Path) -> Iterator[str]:
    """One line for each link that leads nowhere and each thing that is loaded from elsewhere."""
    pages = {file.resolve(): read(file) for file in sorted(folder.rglob("*.html"))}
    for file, page in pages.items():
        here = file.relative_to(folder.resolve())
        for link in page.loads:
            if urlsplit(link).scheme in ("http", "https") or link.startswith("//"):
                yield f"{here} loads {link}"
        for link in {*page.links, *page.loads}:
            to = urlsplit(link)
            if to.scheme or to.netloc or not (to.path or to.fragment):
                continue
            target = (file.parent / unquote(to.path)).resolve() if to.path else file
            if not target.exists():
                yield f"{here}: {link} is not there"
            elif target in pages and unquote(to.fragment) not in {*pages[target].places, ""}:
                yield f"{here}: {link} has no such place"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print(*found, sep="\n")
    sys.exit(bool(found))
