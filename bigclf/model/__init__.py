"""A model: weights, classes, features, how it was trained and how good it is (``model``), and what is asked of it.

``scorer`` takes one row at a time, ``explanations`` says why, ``calibration`` gives probabilities, ``raw_input`` takes
raw files and tables, ``exports/`` writes the formats of others.
"""
