"""OpenAI's HTTP API, as pure codecs: requests in, objects and stream events out, no sockets."""
