"""How long a task will take and how much memory it will need, learnt from the history of its project.

examples.py    attempts of earlier runs as examples, and what is no example
features.py    arguments, host and component as columns of numbers
baseline.py    quantiles by name: what any model has to beat
boosting.py    quantile gradient boosting, by scikit-learn; `trees.py` reads its trees without it
conformal.py   what recent runs say of the model's intervals
training.py    all of it together: a `Model`, which `saved.py` keeps as JSON
simulation.py  what a whole set of tasks takes together
predict.py     the answers; `evaluation.py` holds them against later runs
"""
