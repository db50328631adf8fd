"""``sparkwap metrics``: a Prometheus file of runs, publishes, open branches and landing lag.

``definitions`` lists the metrics, ``facts`` has the types. ``decide`` makes samples from facts,
``gather`` finds the facts in ledger, catalog and landing folders, ``exposition`` writes the text.
The metrics of anomaly audits are something else: see `sparkwap.audits.metrics`.
"""
