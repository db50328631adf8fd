"""Pull requests: audited on a branch of the production tables, published when they are merged.

`commands` is what ``sparkwap pr`` does; `standing` says how a branch stands by the ledger, `base`
what its code is compared with, `code` whether two versions of a node are the same, `comment` what
the reviewer reads. See ``docs/pull-requests.md``.
"""
