"""The engine as the service uses it: its use cases, with the policies and defaults of the settings."""
