"""Crashes: what a run does in front of a fault, and what must hold after it."""
