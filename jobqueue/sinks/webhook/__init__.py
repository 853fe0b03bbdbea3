"""The callback worker: it sends the HTTP requests that the bodies of jobs describe. It is a consumer like any other.

The path of a job: `worker` (one job) -> `callback` (what its body asks for) -> `caller` (the request and its redirects,
each with a slot of its host and checked by `addresses`) -> `callback` (what the answer means for the job).
"""
