"""The way to Redis: from a URL to the server that has a key, and commands over one connection to each server.

client      Redis: runs scripts and commands, listens to channels, retries what may be retried
standalone, sentinels, cluster    which server has a key, behind each kind of URL (url, tls)
server      one server: keeps its connections up
link        one connection: bytes to replies, commands in one write per turn of the event loop
"""
