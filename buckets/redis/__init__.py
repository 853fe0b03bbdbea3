"""The way to Redis: from a URL to the server that has a key, and commands over one connection to each server.

client      Redis: runs scripts and commands, listens to channels, retries commands that may be retried
sentinels, cluster    which server has a key, behind these kinds of URL (url)
server      one server: keeps its connections up; `Standalone`, for a URL of one server
link        one connection: bytes to replies, commands in one write per turn of the event loop
"""
