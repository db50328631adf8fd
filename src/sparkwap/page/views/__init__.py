"""The views of the page: they draw, and decide nothing."""
