"""The anomaly audits: the metrics of a table, and which of their values are unusual."""
