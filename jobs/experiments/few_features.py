"""The few features that carry a prediction: sparse predictors of large infinity-norm margin beside L1-regularised
logistic regression.

    python jobs/experiments/few_features.py OUT [--data DIR] [--sets sci talk comp celegans]

20 Newsgroups, two groups against each other (words that occur, 1,800 messages), and acceptor splice sites of C. elegans
(positional k-mers, k = 1 .. 3, 16,000 sequences of which half have a site; which base stands where, counted from the
site). Four fifths are learned from. MEMMA gives all weight to the features that hold the margin; from its order (by
|weight|) the first m are taken, and of L1-regularised logistic regression (scikit-learn's liblinear solver) the m of
largest weight among 50 values of C. Both subsets are then learned from alike, by ridge-regularised logistic regression,
so that the accuracy says how good the choice is. Rows that cannot all have a margin are learned with few passes.
DIR (or BIGCLF_DATA) holds `20news/` and `celegans/`. OUT gets `results.json`, `table.md` and `features.png`.
"""
