"""Raw columns into sparse rows: what a column becomes is declared, learned in one read, and kept with the model."""
