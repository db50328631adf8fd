"""Maintenance: branches, tags, snapshots and files that nothing needs any more."""
