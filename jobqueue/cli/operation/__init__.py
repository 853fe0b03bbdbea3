"""`jobqueue operation` and its commands; a search without a topic is one of them."""
