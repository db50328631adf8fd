"""Erases a person from the lake (rows, history, files) with a proof, and corrects values."""

from sparkwap.erasure.request import Erase, Rectify
from sparkwap.erasure.subject_tables import NodeColumns

__all__ = ["Erase", "NodeColumns", "Rectify"]
