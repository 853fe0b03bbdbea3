"""Bringing back jobs that live by the journal and of which Redis knows neither life nor tombstone.

For each page of jobs: (1) ask Redis which it does not know; (2) wait until the journal has all that happened until
then; (3) read them again, and leave those that ended; (4) put the others, as they were. So a job that was finished is
not put: while it is in Redis (1) finds it, and when it is no longer there (3) does. An id that Redis knows keeps what
it has. A run may die at any point, and be repeated.

`reading` is what may be asked for, and the queries; `candidates` which jobs come into question, `fates` what becomes of
one, `runs` the runs that the journal keeps, `restore` the work. `forgotten` brings back what a failover forgot. `lost`
does the same for schedules, after the jobs, and for tokens, in a run of its own.
"""
