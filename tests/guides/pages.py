"""The site's pages that are made when it is built, as a hook of mkdocs: nothing of them is kept in the repository.

README becomes the start page and the repository's other documents pages of their own; the references are made from
commands, docstrings and the table of methods.
"""

from __future__ import annotations

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
CLASSES = ("Dataset", "Model", "LinearClassifier", "LinearRegressor", "FeatureTransformer", "Workers", "RunDir")
STEPS = ("convert", "fit", "evaluate", "predict", "calibrate", "sweep", "path", "report")  # then the others by name


def on_files(files, config):
    """Add every page that is made to the pages that are there."""
    from mkdocs.structure.files import File

    for uri, content in made().items():
        files.append(File.generated(config, uri, content=content))
    for name in pictures():
        files.append(File.generated(config, f"pictures/{Path(name).name}", abs_src_path=str(TOP / name)))
    return files


def made():
    """Path and Markdown of each page that is made."""
    pages = {page: document(name) for name, page in DOCUMENTS.items()}
    functions = [name for name in bigclf.__all__ if name not in CLASSES and name not in ("__version__", "errors")]
    ordered = [*STEPS, *(name for name in functions if name not in STEPS)]
    pages["reference/commands.md"] = commands()
    pages["reference/methods.md"] = methods()
    pages["reference/functions.md"] = "# Functions\n\n" + "\n".join(f"::: bigclf.{name}\n" for name in ordered)
    pages["reference/classes.md"] = "# Classes\n\n" + "\n".join(f"::: bigclf.{name}\n" for name in CLASSES)
    pages["reference/errors.md"] = (
        "# Errors and readers\n\n::: bigclf.errors\n    options:\n      show_root_toc_entry: false\n\n"
        "::: bigclf.conversion.text.readers\n"
    )
    return pages


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
                      for option, told in filter(None, records)]  # fmt: skip
            lines += [""]
    return "\n".join(lines)


def plain(text):
    """Words of the terminal as Markdown: nothing in them is markup but code in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", p) for p in parts)


def sentence(text):
    """The text with a capital in front."""
    return plain(text[:1].upper() + text[1:])


def methods():
    """Every method with its paper, update and parameters."""
    lines = ["# Methods in full", "", "What `bigclf algorithms NAME` shows. In the updates `y` is the label, `x` the"
             " row, `l` its loss and `a` its dual variable.", ""]  # fmt: skip
    for method in bigclf.algorithms():
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
            cells = (f"`{param['name']}`", str(param["default"]), bounds, param["about"])
            lines += ["| " + " | ".join(plain(cell).replace("|", r"\|") for cell in cells) + " |"]
        lines += [""]
    return "\n".join(lines)
