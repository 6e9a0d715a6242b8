"""Explanations as text, HTML and SVG."""
