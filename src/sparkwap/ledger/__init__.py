"""The ledger: the history of runs, nodes, tests and publishes, in Iceberg tables of the lake."""
