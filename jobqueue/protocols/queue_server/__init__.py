"""The protocol of queue_server: JSON objects over TCP, without separators, or one in each UDP datagram.

An answer is its request without some of its members, and with some new ones.
"""
