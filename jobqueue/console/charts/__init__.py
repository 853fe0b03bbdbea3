"""Charts as numbers: templates draw them in SVG, with the same numbers in tables below.

A chart takes what the service answers, and knows where each mark stands; what the marks look like is the style's.
"""
