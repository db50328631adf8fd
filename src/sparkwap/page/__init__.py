"""``sparkwap page``: a page in the browser over the ledger and the catalog, read without Spark.

``look`` reads, ``shown`` and ``charts`` decide what is shown of it, ``act`` calls dbt for the
buttons, ``access`` guards them; ``app`` is Streamlit's part, and decides nothing.
"""
