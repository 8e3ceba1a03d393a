"""The normal herd (Crammer and Lee, NIPS 2010): a Gaussian of weight vectors, each of which moves towards the row.

The Gaussian follows the herd: w <- A w + b for the map of least  E[|w' - w|^2 / 2 + C/2 (1 - y w'.x)^2].  Its rule is
one of the confidence-weighted ones, ``HERDING`` of ``confidence_weighted``, where its formula stands.
"""

from __future__ import annotations

from bigclf.methods.common import COST
from bigclf.methods.online.confidence_weighted import HERDING, PRICED, diagonal, gaussian

# Methods

METHODS = (
    gaussian(
        "nherd",
        "normal herd, diagonal by dropping",
        "Crammer and Lee, NIPS 2010",
        "m < 1:  mu <- mu + ((1 - m) / (v + 1/C)) y S x;  1/s <- 1/s + (2 C + C^2 v) x^2",
        lambda: diagonal(HERDING),
        params=(COST,),
        **PRICED,
    ),
)
