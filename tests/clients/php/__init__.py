"""The PHP client alone: its arguments, its worker, the adapters for frameworks, and its test kit."""
