"""Pull requests: audited on a branch of the production tables, published when they are merged.

`commands` is ``sparkwap pr``, `life` what it does; `standing` says how a branch stands by the
ledger, `base` what its code is compared with, `code` whether two versions of a node are the same,
`merging` what of a merge was not audited, `comment` what the reviewer reads. See
``docs/pull-requests.md``.
"""
