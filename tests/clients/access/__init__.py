"""What the Python client shows a service, and what it does when that is refused."""
