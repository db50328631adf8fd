"""OpenLineage events about the end of a run, for catalogs such as Marquez and DataHub.

``model`` has the types. ``naming`` names datasets and jobs, ``events`` makes the events: these
decide. Only ``send`` has input and output. ``events`` imports OpenLineage's client, which is an
extra and slow to import, so it is imported where a run ends.
"""
