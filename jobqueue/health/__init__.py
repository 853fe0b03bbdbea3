"""What is wrong with a service, or may become so, as findings in words.

The checks are functions of what was looked at: settings, a Redis, topics as the service tells of them. `jobqueue check`
uses them from outside, before a service runs or beside it; `Health` (service.py) from inside, for the command `health`.
"""
