"""The protocol of queue_server: JSON objects on TCP, without anything between them, or one in a datagram.

An answer is its request, less some members, and with some more.
"""
