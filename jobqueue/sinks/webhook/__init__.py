"""The callback worker: it does the HTTP requests that the bodies of jobs describe. A consumer like any other.

A job's way: `worker` (one job) -> `callback` (what its body asks for) -> `caller` (the request and its redirects, each
with a slot of its host and checked by `addresses`) -> `callback` (what the answer means for the job).
"""
