"""jobqueue, a delay-queue service, from Spark: `format("jobqueue")` to read and write, and ready-made pipelines.

Spark looks for a `DefaultSource` in every installed package whose name begins with `pyspark_`, and imports them all
whenever it looks up a format. So nothing heavy is imported here.
"""

import os
import sys

from pyspark_jobqueue.connector import DefaultSource

# Spark looks for data sources, and runs them, with the python3 on PATH, unless this is set before its Java starts. In a
# program that spark-submit started, it has started, and executors may have another path.
if not {"PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"} & os.environ.keys():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["DefaultSource"]
