"""The service and a real Chromium, whose pages may do nothing at it."""
