"""Revisions of the schema, for Alembic: what changes the tables that an older version has founded.

A change of a view needs a revision too, which may be empty: after the last one all views are made again.
"""
