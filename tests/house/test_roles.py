"""Where training asks what a method has: in its role, and nowhere else."""

import ast
import dataclasses

import pytest
from making import PACKAGE

from bigclf.methods import METHODS
from bigclf.methods.method import Collection, Dual, Form, Method, Online, Steps, online

PARTS = {field.name for kind in (Form, Online, Dual, Steps, Collection) for field in dataclasses.fields(kind)}
ROLES = ("methods/", "training/roles/")


def asked(tree):
    """The comparisons with None of a part of a method: ``method.form.place is None``, or of a name given to one."""
    given = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_part(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            continue
        left = node.left
        if is_part(left) or (isinstance(left, ast.Name) and left.id in given):
            yield node.lineno


def is_part(node):
    """Whether it is ``<...>.method.form.<part>``, ``how.<part>``, or a part of a method itself."""
    if not isinstance(node, ast.Attribute) or node.attr not in PARTS:
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name in ("method", "form", "how", "collection")


def test_nobody_but_the_roles_asks_what_a_method_has():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(ROLES):
            continue
        if lines := [*asked(ast.parse(path.read_text()))]:
            found[where] = lines
    assert not found


def test_it_sees_such_a_question():
    text = "climb = method.how.climb\nif climb is None or setting.method.form.place is not None or other is None: pass"
    assert [*asked(ast.parse(text))] == [2, 2]


def test_a_method_has_few_fields_and_a_role_each():
    assert len(dataclasses.fields(Method)) <= 22
    assert {type(method.how) for method in METHODS.values()} == {Online, Dual, Steps}
    assert all(method.certificate == (not isinstance(method.how, Online)) for method in METHODS.values())


def test_a_word_that_no_part_takes_is_refused():
    words = dict(name="a", title="b", paper="c", formula="d", shared=tuple, bind=tuple, update=tuple)
    assert online(**words).form.bind is tuple
    with pytest.raises(TypeError, match="absorb"):
        online(**words, absorb=tuple)


def classes_of(path):
    """(class, attributes that it sets, lines, docstring) of every class of the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            names = {inner.attr for inner in ast.walk(node) if is_own(inner)}
            names |= {line.target.id for line in node.body if isinstance(line, ast.AnnAssign)}
            yield node.name, len(names), node.end_lineno - node.lineno + 1, ast.get_docstring(node) or ""


def is_own(node):
    """Whether it sets an attribute of self."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return own and isinstance(node.ctx, ast.Store)


def test_classes_stay_small_or_say_why_they_are_large():
    told = [one for path in PACKAGE.rglob("*.py") for one in classes_of(path)]
    large = {name: (attributes, lines) for name, attributes, lines, _ in told if attributes > 30 or lines > 300}
    assert large.keys() == {name for name, _, _, text in told if "Large because" in text}, large


@pytest.mark.parametrize("folder", ["training/roles", "methods"])
def test_here_no_class_is_large(folder):
    assert not [path for path in (PACKAGE / folder).rglob("*.py") if "Large because" in path.read_text()]
