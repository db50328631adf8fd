"""Publish and rollback: in one transaction, or table by table with a journal."""
