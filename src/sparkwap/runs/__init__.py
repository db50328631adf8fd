"""A run: its nodes and candidates, its close, its rebuild, and the operations on branches."""
