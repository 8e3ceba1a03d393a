"""Row by row for all classes at once; ``multiclass`` is what these kernels share."""
