"""The AI SDK's UI message stream, as a pure codec: requests in, chunks out, no sockets."""
