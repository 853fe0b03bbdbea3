"""Bringing back jobs that live by the journal and of which Redis knows neither life nor tombstone.

For each page of jobs: (1) ask Redis which it does not know; (2) wait until the journal has all that was told until
then; (3) read them again, and leave those that ended; (4) put the others, as they were. So a job that was finished is
not put: while it is in Redis (1) finds it, and when it is not there any more (3) does. An id that Redis knows keeps
what it has. A run may die at any point, and be repeated.

`choice` is what may be asked for, `listing` which jobs come into question, `fates` what becomes of one, `passing` the
wait, `run` the work; `past`, `ended` and `forgotten` are its variants. `schedules`, and of a failover
`forgotten_schedules`, do the same for schedules, behind the jobs. `tokens` is a run of its own, for tokens only.
"""
