"""Job files: ``steps`` of one experiment, their ``schema``, what a job began (``record``), its detached ``driver``."""
