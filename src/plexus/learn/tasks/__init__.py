"""The tasks that come with Plexus, by name. Importing this package does not import torch."""

from plexus.learn.tasks.registry import TASKS, build_task, create_task, parse_task
from plexus.learn.tasks.specs import TaskSpec

__all__ = ["TASKS", "TaskSpec", "build_task", "create_task", "parse_task"]
