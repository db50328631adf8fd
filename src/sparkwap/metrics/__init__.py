"""``sparkwap metrics``: a Prometheus file of runs, publishes, open branches and landing lag.

``gather`` finds the facts in ledger, catalog and landing folders, ``decide`` makes samples from
them, and ``exposition`` defines the metrics and writes their text.
The metrics of anomaly audits are something else: see `sparkwap.audits.metrics`.
"""
