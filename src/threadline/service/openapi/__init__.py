"""The API's description, generated from the handlers."""
