"""The guards of the gate, each with a patch that takes it away, and what runs tests without it."""
