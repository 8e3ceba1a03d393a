"""Links of a built site that lead nowhere: to files that are not there, or to places that no page has.

As a program:  python tests/guides/links.py SITE    prints them, and exits 1 if there are some
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to or loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.places = [], {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.places.add(value)


def dead(site):
    """Each link within the site that leads nowhere, as "page: target"; addresses of other sites are not asked."""
    site = Path(site).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            other = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            other = other / "index.html" if other.is_dir() else other
            missing = not other.is_file() or not other.is_relative_to(site)
            if missing or (other in pages and unquote(parts.fragment) not in pages[other].places):
                yield f"{path.relative_to(site)}: {target}"


def outside(site):
    """As "page: address", whatever a page loads from another site."""
    for path in Path(site).rglob("*.html"):
        for line in path.read_text(encoding="utf-8").split("<")[1:]:
            if line.startswith(("script", "link", "img")) and ('src="http' in line or 'stylesheet" href="http' in line):
                yield f"{path.name}: {line[:100]}"


if __name__ == "__main__":
    found = [*dead(sys.argv[1]), *outside(sys.argv[1])]
    print(*found, f"{len(found)} dead links", sep="\n")
    sys.exit(bool(found))
