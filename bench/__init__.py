"""Measurements of Threadline beside the bare drivers and beside what people use today. Run with `python -m bench`."""
