"""OpenLineage events about the end of a run, for catalogs such as Marquez and DataHub.

``model`` has the types. ``naming`` names datasets and jobs, ``facets`` has the custom facet,
``events`` makes the events: these decide. Only ``send`` has input and output. ``facets`` and
``events`` import OpenLineage's client, which is an extra and slow to import, so they are imported
where a run ends.
"""
