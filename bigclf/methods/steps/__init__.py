"""Methods that take a step between passes: ``newton`` by sums over rows, ``newglmnet`` by columns."""
