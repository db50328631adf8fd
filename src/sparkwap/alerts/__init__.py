"""Alerts: who is told what of rejected, held and rolled back tables, and of quarantine.

``model`` and ``settings`` are the words, ``project`` knows owners and personal columns, ``events``
finds what there is to tell, ``decide`` groups and suppresses, ``render`` writes, ``send`` delivers;
all but the last are free of input and output. ``notify`` puts them together.
"""
