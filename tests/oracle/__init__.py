"""What a change log means, in plain Python: the truth for tests of the tables in Spark."""
