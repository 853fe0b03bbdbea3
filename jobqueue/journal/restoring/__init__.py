"""Brings back jobs that are live according to the journal, and of which Redis knows neither life nor tombstone.

For each page of jobs: (1) ask Redis which ones it does not know; (2) wait until the journal has everything that
happened until then; (3) read these jobs again, and leave out those that have ended; (4) put the others, as they were.
So a job that was finished is not put: while it is in Redis, (1) finds it, and once it is no longer there, (3) does. A
job whose id Redis knows stays as it is. A run may die at any point, and be repeated.

`reading` has the options of a run, and the queries; `candidates` the jobs that a run considers, `fates` what becomes of
each, `runs` the runs as the journal records them, `restore` the work. `forgotten` brings back what a failover forgot.
`lost` brings back schedules, after the jobs, and tokens, in a run of their own.
"""
