"""``sparkwap page``: a page in the browser about the ledger and the catalog, without Spark.

``queries`` and ``raw_tables`` read the lake. ``run_history``, ``open_branches``, ``comparison``,
``key_history`` and ``charts`` make rows and plots. ``app`` and ``views`` draw them with Streamlit.
``actions`` calls dbt for the buttons; the token of ``access`` unlocks them.
"""
