"""Print the lowest versions that pyproject.toml allows, one requirement a line: of bigclf and of the extras named."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for requirement in (
    *project["dependencies"],
    *(r for name in sys.argv[1:] for r in project["optional-dependencies"][name]),
):
    name, floor = re.fullmatch(r"([\w.\-]+(?:\[\w+\])?)>=([\w.]+)(?:,.*)?", requirement).groups()
    print(f"{name}=={floor}")
