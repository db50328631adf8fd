"""``sparkwap page``: a page in the browser over the ledger and the catalog, read without Spark.

``queries`` and ``quarantine`` read; ``run_history``, ``open_branches``, ``comparison``,
``key_history`` and ``charts`` decide what is shown; ``app`` and ``views`` draw it with Streamlit;
``actions`` calls dbt for the buttons, which the token of ``access`` unlocks.
"""
