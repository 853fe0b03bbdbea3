"""Questions to a journal about many jobs: `jobqueue audit`.

`asked` is what is asked, `ranges` how that becomes conditions in SQL; `minutes` answers from the sums by minute, which
are few and kept longest, `events` from the events, `gaps` from what is missing; `questions` is the table of them.
"""
