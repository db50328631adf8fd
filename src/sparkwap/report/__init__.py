"""The Elementary report of a lake: what the ledger and dbt's artifacts tell, as a page.

`answers` says it in the words of Elementary, from the rows of the ledger and dbt's manifest;
`page`, which runs where the package ``elementary-data`` is, hands these to Elementary's own report;
`command` is ``sparkwap report``.
"""
