"""Every public name says what it takes and gives: parameters by name, shapes or types, errors."""

import inspect
import re

import pytest

import bigclf
from bigclf.methods import METHODS

METHOD_PARAMETERS = {param.name for method in METHODS.values() for param in method.params}


def public():
    """(name, object) of all that ``bigclf`` offers, with the public methods and properties of its classes."""
    for name in bigclf.__all__:
        thing = getattr(bigclf, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            yield name, thing
            for key, member in vars(thing).items():
                kind = inspect.isfunction(member) or isinstance(member, property | classmethod)
                if kind and not key.startswith("_"):
                    yield f"{name}.{key}", member
    for key, error in vars(bigclf.errors).items():
        if inspect.isclass(error) and issubclass(error, Exception) and not key.startswith("_"):
            yield f"errors.{key}", error


def signature(thing):
    function = thing.__init__ if inspect.isclass(thing) else getattr(thing, "__func__", thing)
    names = [] if isinstance(thing, property) else list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls", "args", "kwargs")]


@pytest.mark.parametrize(("name", "thing"), list(public()))
def test_public_names_are_described(name, thing):
    text = inspect.getdoc(thing) or ""
    assert len(text) > 20, "no docstring"
    inherited = issubclass(thing, Exception) if inspect.isclass(thing) else False
    names = signature(thing)
    if re.search(r"\bparams :", text):
        names = [p for p in names if p not in METHOD_PARAMETERS]
    if "Everything else is as in ``fit``" in text:
        names = [p for p in names if p not in signature(bigclf.fit)]
    missing = [] if inherited else [p for p in names if not re.search(rf"\b{p}\b", text)]
    assert not missing, f"not a word on {missing}"


@pytest.mark.parametrize(("name", "thing"), [(n, t) for n, t in public() if "." not in n])
def test_parameters_have_types_or_shapes_and_errors_are_listed(name, thing):
    text = inspect.getdoc(thing)
    if not signature(thing):
        return
    assert "Parameters\n" in text or "Attributes\n" in text, "no list of parameters"
    described = re.findall(r"^([\w, *]+) : (.+)$", text, re.MULTILINE)
    assert described
    if inspect.isfunction(thing):
        assert "Raises\n" in text and "Returns\n" in text
