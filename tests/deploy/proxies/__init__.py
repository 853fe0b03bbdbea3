"""nginx and HAProxy with the files of deploy/, in front of two real services."""
