"""Alerts about rejected, held and rolled back tables, and about quarantines.

``model`` has the types. ``project`` has the owners and personal columns. ``events`` makes events
from facts, ``look`` finds the facts in a lake. ``decide`` groups and suppresses events, ``render``
writes messages, ``send`` delivers them. ``notify`` calls these. Only ``look``, ``send`` and
``notify`` have input and output.
"""
