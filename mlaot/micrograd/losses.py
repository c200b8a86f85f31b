"""``mlaot.frontend.scalar.losses`` under the name that a user imports it by."""

from mlaot.frontend.scalar.losses import *  # noqa: F403
