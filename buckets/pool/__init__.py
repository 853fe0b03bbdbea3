"""The job pool: one method per move, and the ways to make moves cheap: adds, finishes and pops of concurrent requests
share scripts, similar jobs are sent together, and a pop asks only the shards that may have jobs.
"""
