"""How long a task will take and how much memory it will need, learnt from the history of its project.

features.py    attempts of earlier runs as examples; arguments, host and component as columns of numbers
baseline.py    what a prediction is; quantiles by name, which any model has to beat
boosting.py    quantile gradient boosting, by scikit-learn, and its trees read without it
training.py    the better of both, and what recent runs say of its intervals
model.py       all of it together, kept as JSON
schedule.py    what a whole set of tasks takes together; `eta.py` what is left of one that runs
predict.py     the answers; `evaluation.py` compares them with later runs
"""
