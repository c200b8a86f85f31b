"""``mlaot.frontend.scalar.engine`` under the name that a user imports it by."""

from mlaot.frontend.scalar.engine import *  # noqa: F403
