"""The answer in words: headline, evidence, what to do, and which cause stands above which."""
