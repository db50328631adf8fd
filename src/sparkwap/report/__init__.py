"""The Elementary report of a lake, from the ledger and dbt's artifacts.

`history` selects the rows of the ledger. `answers` answers the macros of Elementary, with
`artifacts` and `results`. `page` makes Elementary's own report from the answers; it runs
where the package ``elementary-data`` is installed. `command` is ``sparkwap report``.
"""
