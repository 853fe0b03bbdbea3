"""What the dialects share: names, bodies and connections. The dialects themselves are in jobqueue/protocols/."""
