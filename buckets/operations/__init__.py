"""Operations: one change to all jobs that match a filter. It is planned (counted), started by the plan's number, and
carried out in the background, at a bounded rate, so that it can be paused, cancelled, and gone on with by another
instance.
"""
