"""What a test of Threadline, or of a store for it, needs: an injected clock, a real PostgreSQL, and the conformance
suite that says what a store is. Nothing here is imported by the library itself."""
