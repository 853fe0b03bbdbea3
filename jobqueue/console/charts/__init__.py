"""Charts as numbers: templates draw them in SVG, with the same numbers in tables below.

A chart computes the position of each mark from an answer of the service; the style sheet defines how the marks look.
"""
