"""The units of deploy/systemd, and the service in their sandbox."""
