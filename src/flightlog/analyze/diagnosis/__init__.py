"""What a failure most likely is, and what to do about it.

Read: `reading`, `exceptions` and `patterns` take a failure text apart; `failures`, `requests` find what the
run recorded. Group: `groups` puts failures together, `case` collects the facts of each group. Score: the
`rules` (`base` is their contract, `matchers` what they are made of) yield signs, `evidence` adds what only a
record knows, `scoring` adds them up. Explain: `attribution`, `remedies` and `wording` make the `results`.
`scoring.diagnose_text` diagnoses a text alone, `diagnose.diagnose` a whole run.
"""
