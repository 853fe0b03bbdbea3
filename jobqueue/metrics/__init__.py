"""The metrics: what `GET /metrics` answers.

`process` counts what one process does, in `series`. `scrape` adds the figures of the namespace from Redis; `totals`
keeps those from falling. Processes on one machine share their metrics in a folder (`shared`); that of the workers of
one supervisor is a `scratch` folder.
"""
