"""`jobqueue deliver`: the rules that apply to all kinds of sinks.

A sink's jobs come through a worker of the Python client. A job is finished when the broker has confirmed its message; a
fault of the job counts as a try, a fault of the broker does not.
"""
