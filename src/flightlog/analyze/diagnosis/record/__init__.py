"""What the record of a run knows of its failures: which there were, what stood around them, and the case of
each.
"""
