"""The gate's decisions, pure: verdicts, placement, the guard, settings, the summary."""
