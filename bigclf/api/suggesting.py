"""``bigclf.suggest``: what the columns of a raw table should become, by a look at its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigclf.conversion.foreign_rows import first_rows, is_collected
from bigclf.conversion.tables import suggest as tables
from bigclf.features.values import is_table
from bigclf.model.model import is_stored

if TYPE_CHECKING:
    from bigclf.conversion.tables.suggest import Suggestion


def suggest(data: object, label: object = None, **reader: object) -> Suggestion:
    """Propose a spec of features for raw files or a table, as ``bigclf inspect --suggest`` does for files.

    ``bigclf.fit("people.csv", features=bigclf.suggest("people.csv", label="income"))`` uses it as it is;
    ``print(bigclf.suggest("people.csv"))`` shows it as YAML; correct what is wrong.

    Parameters
    ----------
    data : path, directory, glob or a list of them; rows of the first file are looked at. Or a table in memory (pandas,
        Polars, Arrow), a Dask DataFrame, a lazy frame or a stream such as a DuckDB relation, whose first rows are.
    label : the column to predict; None: guessed from names and values. Of rows with several labels: a list of columns,
        or ``{"column": ..., "separator": ...}``.
    reader : what is known of how the file is read (``format``, ``separator``, ``decimal`` ...); the rest is guessed.

    Returns
    -------
    what ``features=`` takes: ``columns`` (name, kind, options, why), ``label``, ``classes``, ``spec()``; as text, YAML.

    Raises
    ------
    DataError : there are no rows. SchemaError : there is no column ``label``; an unknown option of the reader.
    """
    if not (is_collected(data) or is_table(data) or is_stored(data)):
        raise TypeError(f"suggest looks at files or a table, not at a {type(data).__name__}")
    table = first_rows(data, tables.FIRST_ROWS) if is_collected(data) else data
    return tables.compared(tables.suggest(table, reader, label), table)
