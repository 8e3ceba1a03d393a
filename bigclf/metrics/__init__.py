"""How good a model is on rows it has not seen: ``figures``."""
