"""The protocol of camellia's delay queue server: forms over HTTP, answered with JSON. `space` maps its topics and ids
to ours, `requests` turns parameters into commands and answers into replies, and `monitor` has the figures of the last
minute."""
