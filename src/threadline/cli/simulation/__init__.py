"""`threadline channels simulate`: the messaging channels against fake platforms, for trying them without an account."""
