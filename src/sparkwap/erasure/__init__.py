"""Taking a person out of the lake: rows, history, files, with proof; and putting values right."""

from sparkwap.erasure.operation import Erasure, ProofFailed
from sparkwap.erasure.request import Erase, Rectify
from sparkwap.erasure.subject_tables import NodeColumns

__all__ = ["Erase", "Erasure", "NodeColumns", "ProofFailed", "Rectify"]
