"""An extension of griffe, which reads the source, for the site's API reference.

Docstrings that are filled in at import are taken from there. What stands behind the name of a parameter or an error is
a description here, not only a type, and what is returned is a sentence.
"""

import importlib
import inspect
import re

import griffe

SECTION = re.compile(r"^([A-Z]\w+)\n-{3,}\n(.*?)(?=^[A-Z]\w+\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)


class LiveDocstrings(griffe.Extension):
    def on_object(self, *, obj, **kwargs):
        """Take the docstring that Python sees, where the one in the source has a place to fill."""
        if not obj.docstring:
            return
        if "{options}" in obj.docstring.value:
            thing = importlib.import_module(obj.module.path)
            for part in obj.path.removeprefix(f"{obj.module.path}.").split("."):
                thing = getattr(thing, part)
            obj.docstring.value = inspect.getdoc(thing)
        obj.docstring.value = readable(obj.docstring.value)


def readable(text):
    """The docstring with what it returns in front of the sections, and descriptions below the names in these."""
    about, sections = SECTION.split(text)[0].rstrip(), [*SECTION.finditer(text)]
    for section in sections:
        title, body = section.groups()
        if title in ("Returns", "Yields"):
            about += f"\n\n**{title}:** {inspect.cleandoc(body)}"
    return "\n\n".join(
        [about, *(listed(*section.groups()) for section in sections if section[1] not in ("Returns", "Yields"))]
    )


def listed(title, body):
    """A section as griffe reads it: each name on a line of its own, the words below it."""
    return f"{title}\n{'-' * len(title)}\n" + re.sub(r"^(\S.*?) : (.*)$", r"\1\n    \2", body, flags=re.MULTILINE)
