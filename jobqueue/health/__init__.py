"""What is wrong with a service, or may go wrong soon, as findings in words.

Each check is a function of the thing that it examines: settings, a Redis, topics as the service reports them. From
outside, before or while a service runs, `jobqueue check` uses them; from inside, `Health` (service.py) does, for the
command `health`.
"""
