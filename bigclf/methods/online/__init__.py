"""Methods whose kernel learns row by row; read ``perceptron`` first, then ``passive_aggressive``."""
