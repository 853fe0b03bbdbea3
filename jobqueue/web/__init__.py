"""HTTP: connections, the fast path for simple requests, and aiohttp's application for all others."""
