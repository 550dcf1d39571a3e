"""Declare the training runs behind the tables of the docs, one module for each page.

`python -m benchmarks reproductions/NAME` trains the missing runs, which takes hours, and updates
the tables and figures of the page. With `--no-train`, it only updates the tables and figures.
"""
