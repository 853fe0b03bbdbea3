"""What writes a journal into a database, a file for each kind: a connection, and a store on it (../store.py)."""
