"""``mlaot.frontend.scalar.graph`` under the name that a user imports it by."""

from mlaot.frontend.scalar.graph import *  # noqa: F403
