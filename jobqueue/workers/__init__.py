"""The processes that answer on one port.

`supervisor` holds what exists once. It has a `slot` for each worker, which starts its process, replaces it when it
dies, and stops it. `messages` carry the settings from the supervisor to a `worker`. `port` keeps the port for them, and
`cores` decides how many there are. `notify` is what the service manager is told, of one process or of several.
"""
