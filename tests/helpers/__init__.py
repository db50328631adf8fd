"""The words of the functional tests: a project, what dbt said, and what a reader of main sees."""

from helpers.lake import Look, Poller, Reader, SparkReader
from helpers.project import MakeProject, Outcome, Project

__all__ = ["Look", "MakeProject", "Outcome", "Poller", "Project", "Reader", "SparkReader"]
