"""HTTP: the listening socket, connections, the fast path for plain requests, and aiohttp's application for the rest."""
