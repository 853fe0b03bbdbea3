"""Revisions of the schema, for Alembic: they change tables that an older version has created.

A change to a view needs a revision, too, which may be empty: after the last revision, all views are created again.
"""
