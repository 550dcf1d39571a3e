"""The trainings behind the tables of the docs, one declaration for each page.

`python -m benchmarks reproductions/NAME` trains the missing runs, which takes hours, and updates
the tables and figures of the page. `--no-train` only updates these.
"""
