"""Maintenance: removes branches, tags, snapshots and files that nothing needs."""
