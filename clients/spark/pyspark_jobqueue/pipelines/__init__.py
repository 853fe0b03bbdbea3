"""Ready-made pipelines on top of the connector, one module each, with a command line of its own.

Run one with `python -m pyspark_jobqueue.pipelines.emit --help`, or hand its file to spark-submit: `python -m
pyspark_jobqueue.pipelines emit` prints the path. They do not import each other; what they share is in `parts`.
"""
