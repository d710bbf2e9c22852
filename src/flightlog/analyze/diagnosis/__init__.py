"""What a failure most likely is, and what to do about it.

`text.diagnose_text` reads a text alone, `diagnose.diagnose` a whole run. A run's failures are found, grouped
and made into cases in `record`, weighed by the `rules` (`base` is their contract, `weighing` how their signs
add up), and told in `answer`; `results` is what comes out. The modules beside take texts apart for the rules.
"""
