"""Ready-made pipelines on top of the connector, one module each, with a command line of its own.

Run one with `python -m pyspark_jobqueue.pipelines.emit --help`, or pass its file to spark-submit: `python -m
pyspark_jobqueue.pipelines emit` prints the path. The pipelines do not import each other; shared code is in `parts`.
"""
