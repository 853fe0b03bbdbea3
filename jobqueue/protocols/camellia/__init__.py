"""The protocol of camellia's delay queue server: forms over HTTP, answered with JSON. `space` is how its topics and ids
are called inside, `requests` turns parameters into commands, `messages` shows jobs, `topics` and `monitor` figures,
`replies` all the rest."""
