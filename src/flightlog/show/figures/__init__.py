"""Plotly figures: a result in, a figure out. The same figures serve the report, the dashboard, notebooks and
pictures.

Each function is pure, and returns None where there is nothing to draw. Plotly is imported with the first
figure. Texts of a run pass through `plain`, so that Plotly finds no markup in them.
"""
