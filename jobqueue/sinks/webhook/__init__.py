"""The callback worker: it does the HTTP requests that the bodies of jobs describe. A consumer like any other.

A job's way: `worker` (one job) -> `callback` (what its body says) -> `caller` (the request, its redirects, each through
`places` and `addresses`) -> `verdicts` (what its answer means for the job).
"""
