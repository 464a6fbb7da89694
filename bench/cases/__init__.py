"""The cases: what is measured, one small file per group. A case's docstring says what it measures and why."""
