"""The dialect of mykit-delay."""
