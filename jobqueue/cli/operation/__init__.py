"""`jobqueue operation` and its commands; a search for jobs without a topic is an operation, too."""
