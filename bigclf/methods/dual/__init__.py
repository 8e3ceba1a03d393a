"""Methods that ascend the dual: ``dual_coordinate_descent``, and of many classes; with gradients over free rows."""
