"""The commands that hand jobs on: to the URLs in their bodies, and to brokers."""
