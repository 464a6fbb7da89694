"""`threadline chat`: talk to an agent in the terminal, leave, come back, go on."""
