"""What an operator gives of numbers, found out once.

numba asks again for each "a + b" of a kernel, and of the same one in each round of its type inference. It goes through
all that "+" may mean and writes an error message for each that does not fit: a tenth of all compiling. Of numbers the
answer is always the same.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TypeAlias

from numba.core import types
from numba.core.typing import Signature
from numba.core.typing.context import BaseContext

Asked: TypeAlias = tuple[BaseContext, types.Type, tuple[types.Type, ...]]

OPERATORS = frozenset(one for one in vars(operator).values() if callable(one))
_known: dict[Asked, Signature | None] = {}


class Remembering:
    """A typing context of numba that remembers what operators give of numbers."""

    def __init__(self, context: BaseContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def resolve_function_type(
        self, function: types.Type, arguments: tuple[types.Type, ...], keywords: Mapping[str, types.Type]
    ) -> Signature | None:
        """As the context itself says it."""
        if keywords or not is_operator(function) or not all(map(is_number, arguments)):
            return self._context.resolve_function_type(function, arguments, keywords)
        asked = self._context, function, tuple(arguments)
        if asked not in _known:
            _known[asked] = self._context.resolve_function_type(function, arguments, keywords)
        return _known[asked]


def is_operator(function: types.Type) -> bool:
    return isinstance(function, types.Function) and function.typing_key in OPERATORS


def is_number(kind: types.Type) -> bool:
    return isinstance(kind, types.Number | types.Boolean)
