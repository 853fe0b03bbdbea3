"""jobqueue, a delay-queue service, from Spark: `format("jobqueue")` to read and write, and ready-made pipelines.

Spark looks for a `DefaultSource` in every installed package whose name begins with `pyspark_`, and imports them all
whenever it looks up a format. So nothing heavy is imported here.
"""

import os
import sys

from pyspark_jobqueue.connector import DefaultSource

# Spark finds and runs data sources with the python3 on PATH, unless PYSPARK_PYTHON is set before its Java starts. In a
# program started by spark-submit, Java is already running, and executors may have Python at another path.
if not {"PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"} & os.environ.keys():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["DefaultSource"]
