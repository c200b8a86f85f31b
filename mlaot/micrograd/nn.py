"""``mlaot.frontend.scalar.nn`` under the name that a user imports it by."""

from mlaot.frontend.scalar.nn import *  # noqa: F403
