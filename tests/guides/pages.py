"""The site's pages that are made when it is built, as a hook of mkdocs: nothing of them is kept in the repository.

README becomes the start page and the repository's other documents pages of their own. The references are made from
commands and docstrings, and the tables of methods become sections.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import click

import bigclf
from bigclf.cli import main

TOP = Path(__file__).parents[2]
DOCUMENTS = {  # document of the repository: its page
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security.md",
    "LICENSE": "project/licence.md",
    "cluster/README.md": "project/clusters.md",
    "jobs/README.md": "project/jobs.md",
}
GUIDES = "bigclf/guides/"
CLASSES = {  # public class: those of its members that users call; None: all that it has
    "Dataset": ("n_chunks", "blocks", "with_real_labels", "leading"),
    "Model": (
        *(
            "n_features",
            "regression",
            "decision_function",
            "predict",
            "predict_proba",
            "scorer",
            "explain",
            "explain_row",
        ),
        *("export", "to_sklearn", "from_liblinear", "save", "load"),
    ),
    "LinearClassifier": None,
    "LinearRegressor": None,
    "FeatureTransformer": None,
    "Workers": (),
    "RunDir": (),
}
STYLE = """\
.md-typeset table:not([class]) :is(td, th) code { word-break: normal; } /* names stay whole; tables scroll */
.md-typeset h1 .headerlink { display: none; } /* on a phone it takes a line of its own */
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) td { min-width: 5rem; }
"""
STEPS = ("convert", "fit", "evaluate", "predict", "calibrate", "sweep", "path", "report")  # then the others by name


def on_files(files, config):
    """Add every page that is made to the pages that are there."""
    from mkdocs.structure.files import File

    for uri, content in made().items():
        files.append(File.generated(config, uri, content=content))
    files.append(File.generated(config, "style.css", content=STYLE))
    for name in pictures():
        files.append(File.generated(config, f"pictures/{Path(name).name}", abs_src_path=str(TOP / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lay a page out for the site."""
    return shown(markdown)


def made():
    """Path and Markdown of each page that is made."""
    pages = {page: document(name) for name, page in DOCUMENTS.items()}
    functions = [name for name in bigclf.__all__ if name not in CLASSES and name not in ("__version__", "errors")]
    ordered = [*STEPS, *(name for name in functions if name not in STEPS)]
    pages["reference/commands.md"] = commands()
    pages["reference/functions.md"] = "# Functions\n\n" + "\n".join(f"::: bigclf.{name}\n" for name in ordered)
    pages["reference/classes.md"] = "# Classes\n\n" + "\n".join(entry(*named) for named in CLASSES.items())
    errors = [name for name, thing in vars(bigclf.errors).items() if inspect.isclass(thing) and thing.__module__ ==
              "bigclf.errors" and issubclass(thing, Exception)]  # fmt: skip
    pages["reference/errors.md"] = "\n".join([
        f"# Errors and readers\n\n{inspect.getdoc(bigclf.errors)}\n",
        *(entry(f"errors.{name}", ()) for name in errors),
        entry("conversion.text.readers", ("register",)),
    ])  # fmt: skip
    return pages


def entry(name, members=None):
    """What mkdocstrings fills in: a name with some of its members, or with all."""
    return f"::: bigclf.{name}\n" + (
        f"    options: {{members: [{', '.join(members)}]}}\n" if members is not None else ""
    )


def pictures():
    """The pictures that README shows, as paths in the repository."""
    return re.findall(r"!\[[^\]]*\]\((?!https:)([^)\s]+)\)", (TOP / "README.md").read_text(encoding="utf-8"))


def document(name):
    """A document of the repository as a page: links lead to pages, and where there is none only the words stay."""
    text = (TOP / name).read_text(encoding="utf-8")
    if name == "LICENSE":
        return f"# Licence\n\n```text\n{text}```\n"
    here = os.path.dirname(DOCUMENTS[name])

    def link(found):
        mark, words, target, anchor = found.groups()
        if target.startswith("https://"):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
        if mark:
            return f"![{words}]({os.path.relpath(f'pictures/{Path(path).name}', here or '.')})"
        page = path.removeprefix(GUIDES) if path.startswith(GUIDES) else DOCUMENTS.get(path)
        return f"[{words}]({os.path.relpath(page, here or '.')}{anchor or ''})" if page else words

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)", link, text)


def commands():
    """The reference of the commands, from click's own records."""
    group = click.Context(main, info_name="bigclf")
    lines = ["# Commands", "", "Each section is what `bigclf COMMAND --help` shows.", ""]
    for name in main.list_commands(group):
        command = main.get_command(group, name)
        context = click.Context(command, info_name=name, parent=group)
        usage = " ".join(["bigclf", name, *command.collect_usage_pieces(context)])
        about = re.sub(r"^ +", "", (command.help or "").replace("\b", "").split("\f")[0], flags=re.MULTILINE)
        lines += [f"## {name}", "", "```text", usage, "```", "", plain(about), ""]
        records = [param.get_help_record(context) for param in command.get_params(context)]
        if any(records):
            lines += ["| option | what it does |", "| --- | --- |"]
            lines += [f"| `{option.replace('|', chr(92) + '|')}` | {plain(told).replace('|', chr(92) + '|')} |"
                      for option, told in filter(None, records) if told]  # fmt: skip
            lines += [""]
    return "\n".join(lines)


def plain(text):
    """Words of the terminal as Markdown: nothing in them is markup but code in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", p) for p in parts)


def sentence(text):
    """The text with a capital in front."""
    return plain(text[:1].upper() + text[1:])


def shown(markdown):
    """A document as the site has it: tables of methods become a section for each, with its parameters.

    A bar within code needs no backslash here, in a table either.
    """
    table = r"<!-- methods:.*?<!-- end of methods -->"
    markdown = re.sub(table, lambda found: methods(re.findall(r"^\| `(\w+)`", found[0], re.MULTILINE)), markdown,
                      flags=re.DOTALL)  # fmt: skip
    return re.sub(r"^\|.*$", lambda line: unbarred(line[0]), markdown, flags=re.MULTILINE)


def unbarred(line):
    """A line of a table whose code has its bars as they are."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), line)


def methods(names):
    """What ``bigclf algorithms NAME`` shows of these methods."""
    described, lines = {method["name"]: method for method in bigclf.algorithms()}, []
    for method in map(described.get, names):
        lines += [f"## `{method['name']}` {{ #{method['name']} }}", "", f"{sentence(method['title'])}.", ""]
        lines += [f"Paper: {plain(method['paper'])}.", "", "```text", *method["update"].split(";  "), "```", ""]
        facts = {"losses": method["losses"], "bias": method["bias"], "penalties": method["penalties"],
                 "several classes": method["multiclass"], "mixing": method["mixings"]}  # fmt: skip
        lines += [
            f"- {fact}: " + ", ".join(f"`{value}`" for value in values) for fact, values in facts.items() if values
        ]
        lines += ["- quality: " + ("a certified gap" if method["certificate"] else "progressive validation error"), ""]
        if method["parameters"]:
            lines += ["| parameter | default | bounds | what it is |", "| --- | --- | --- | --- |"]
        for param in method["parameters"]:
            bounds = ", ".join(param["choices"]) or param["bounds"]
            default = "" if param["default"] is None else str(param["default"])
            cells = (f"`{param['name']}`", default, bounds, param["about"])
            lines += ["| " + " | ".join(plain(cell).replace("|", r"\|") for cell in cells) + " |"]
        lines += [""]
    return "\n".join(lines)
