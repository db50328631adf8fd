"""Pull requests: audited on a branch of the production tables, published when they are merged.

`commands` is ``sparkwap pr``, and `life` carries it out. `standing` reads the state of a branch
from the ledger, `base` finds the published code to compare with, `merging` finds merged code
that was not audited, `comment` writes the comment for the reviewer, and `results` has what the
commands return. See ``docs/pull-requests.md``.
"""
