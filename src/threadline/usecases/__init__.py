"""What the system does, in verbs: each takes a scope, and each rule of the house is kept in one of them."""
