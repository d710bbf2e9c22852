"""What a failure most likely is, and what to do about it.

`read` finds what the run recorded, `group` puts failures together, `text` takes a failure's text apart. The
`rules` (`base` is their contract) yield signs, which `score`
adds up. `explain` and `diagnose` make the `results`. `score.diagnose_text` diagnoses a text alone,
`diagnose.diagnose` a whole run.
"""
