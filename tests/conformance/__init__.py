"""One scenario and one set of trials for all clients, each as a real process against a real service."""
