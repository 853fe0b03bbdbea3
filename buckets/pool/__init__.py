"""The job pool: one method a move, and what makes moves cheap: adds, finishes and pops of concurrent requests share
scripts, jobs that are alike travel together, and a pop asks only the shards that may have jobs.
"""
