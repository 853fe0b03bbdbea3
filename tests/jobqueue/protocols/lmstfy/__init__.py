"""The dialect of lmstfy."""
