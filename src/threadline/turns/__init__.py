"""One turn, from its request to its stored reply: accept, run, stream, recover."""
