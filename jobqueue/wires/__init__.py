"""What the dialects share: names, bodies and connections. Each dialect itself is in jobqueue/protocols/."""
