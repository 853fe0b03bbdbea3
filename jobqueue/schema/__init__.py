"""What may be said to the service, stated once: fields, the commands made of them, bodies, cursors and answers.

The reader of requests, the refusals, the reference, the OpenAPI description and the command line take it from here.
"""
