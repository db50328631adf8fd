"""What a build would do: which nodes have changed, or read what has changed, since a publish."""
