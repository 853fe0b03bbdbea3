"""The metrics that `GET /metrics` returns.

`process` counts the work of one process, in `series`. `scrape` adds the figures of the namespace from Redis, whose
totals it keeps from falling. Processes on one machine share their metrics in a folder (`shared`); the workers of one
supervisor use a scratch folder.
"""
