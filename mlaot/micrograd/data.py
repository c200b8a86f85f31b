"""``mlaot.frontend.scalar.data`` under the name that a user imports it by."""

from mlaot.frontend.scalar.data import *  # noqa: F403
