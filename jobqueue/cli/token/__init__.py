"""`jobqueue token` and its commands."""
