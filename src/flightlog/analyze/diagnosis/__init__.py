"""What a failure most likely is, and what to do about it.

Read: `reading` and `exceptions` take a failure text apart; `failures` finds what the run recorded. Group:
`failures` puts failures together, `case` collects the facts of each group. Score: the `rules` (`base` is
their contract, `matchers` what they are made of) yield signs, `scoring` adds what only a record knows, and
adds them up. Explain: `wording` and `diagnose` make the `results`. `scoring.diagnose_text` diagnoses a text
alone, `diagnose.diagnose` a whole run.
"""
