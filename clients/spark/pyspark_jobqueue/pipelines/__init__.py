"""Ready pipelines on the connector. Each is a module with a command line of its own: `python -m
pyspark_jobqueue.pipelines.emit --help`, or by spark-submit with the module's file.

What they share stands in `flags` (the flags of all, and how errors end a run) and `report`; they do not know
each other.
"""
