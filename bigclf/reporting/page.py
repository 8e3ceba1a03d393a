"""A report as data: sections of facts, figures and tables, which the template shows alike.

What is text here is escaped by the template, whatever it holds; markup comes from ``pictures`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """``columns`` (name, "text" or "number"), ``rows`` of cells; a cell is text, or a ``Bar`` or ``Shade``."""

    caption: str
    columns: list[tuple[str, str]]
    rows: list[list[Any]]
    note: str = ""


@dataclass
class Bar:
    """A number with a bar of so much (0 to 1) of the cell; ``against``: in the other colour."""

    text: str
    share: float
    against: bool = False


@dataclass
class Shade:
    """A number on a ground as deep as ``share`` (0 to 1)."""

    text: str
    share: float


@dataclass
class Figure:
    """A drawing (markup) with its heading and what it shows."""

    title: str
    drawing: Any
    text: str = ""


@dataclass
class Section:
    """``facts`` : names and values; ``notes`` : what a reader should know."""

    name: str
    title: str
    text: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.facts or self.figures or self.tables or self.notes)


@dataclass
class Tile:
    """A figure to see first; ``tone`` "good", "poor" or nothing."""

    name: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass
class Page:
    title: str
    subtitle: str
    tiles: list[Tile]
    sections: list[Section]
    version: str


def render(page: Page) -> str:
    """One self-contained HTML file: no script, nothing from elsewhere, and a policy that forbids both."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bigclf", "reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    environment.tests["shade"] = lambda cell: isinstance(cell, Shade)
    return environment.get_template("report.html").render(page=page)
