"""The version, where nothing has to be imported for it."""

__version__ = "0.1.0"
