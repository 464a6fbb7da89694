"""Values and rules: no I/O, no clock, no import from outside the core."""
