"""The tasks that come with Plexus, by name. Importing this package does not import torch."""

from plexus.learn.tasks.registry import TASKS, build_task, create_task, parse_task
from plexus.learn.tasks.specs import OwnTaskSpec, TaskSpec

__all__ = ["TASKS", "OwnTaskSpec", "TaskSpec", "build_task", "create_task", "parse_task"]
