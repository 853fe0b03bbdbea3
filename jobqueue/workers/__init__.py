"""The processes that answer on one port.

`supervisor` holds what exists once: the port, and what the service manager is told. It has a `slot` for each worker,
which starts its process, replaces it when it dies, and stops it. `messages` carry the settings from the supervisor to a
`worker`. `cores` decides how many workers there are. `console` and `journal` are about the processes beside them.
"""
