"""Agent frameworks and Threadline: their conversations stored as threads, and their agents as agents here.

One package for each framework, imported by its own name (`threadline.adapters.langgraph`), with an extra of the same
name that installs the framework. Messages become messages of a thread, so that they can be read, searched and continued
everywhere; what only the framework understands is stored as values beside the log.
"""
