"""The callback worker: it does the HTTP requests that the bodies of jobs describe. A consumer like any other.

A job's way: `worker` (one job) -> `callback` (what its body says) -> `caller` (the request and its redirects, each with
one of the `host_slots` and checked by `addresses`) -> `verdicts` or `failures` (what came back means for the job).
"""
