"""The language of commands, defined once: fields, commands, checks, bodies, cursors and answers.

The reader of requests, the refusals, the settings, the reference, the OpenAPI description and the command line are
made from it.
"""
