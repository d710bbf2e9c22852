"""How long a task will take and how much memory it will need, learnt from the history of its project.

features.py    attempts of earlier runs as examples; arguments, host and component as columns of numbers
baseline.py    what a prediction is; quantiles by name, which any model has to beat
training.py    quantile gradient boosting, the better of both, and what recent runs say of its intervals
predict.py     the model, kept as JSON, its answers, and how they compare with later runs
eta.py         what a whole set of tasks takes together, and what is left of one that runs
"""
