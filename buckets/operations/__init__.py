"""Operations: one change to all jobs that match a filter. An operation is planned (counted), started by the plan's id,
and carried out in the background at a bounded rate. It can be paused and cancelled, and another instance can continue
it.
"""
