"""A Spark Connect program that writes jobs and reads them back.

`python -m tests.spark.connector.connect_program URL TOPIC`
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark_jobqueue import session


def main(url: str, topic: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    rows = spark.range(0, 1000, 1, 2).selectExpr(f"concat('{topic}:', id) AS id", "3600 AS delay", "struct(id) AS body")
    rows.write.format("jobqueue").options(url=url, topic=topic).mode("append").save()
    read = spark.read.format("jobqueue").options(url=url, topic=topic).load()
    print(type(spark).__module__, read.where("state = 'delayed'").select("id").distinct().count())
    spark.stop()


if __name__ == "__main__":
    session.provide()
    main(*sys.argv[1:3])
