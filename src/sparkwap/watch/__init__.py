"""``sparkwap watch``: a gated build for each new set of landing files, or on a schedule.

``decision`` says what is due, without a clock or a disk; ``loop`` does it; ``command`` is the
command line.
"""
