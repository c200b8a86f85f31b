"""The commands of ``mlaot``, a file each: ``HELP``, ``DESCRIPTION``, ``EXAMPLES``, ``add`` (its arguments) and ``run``.

``run`` returns the exit status. What only some command needs is imported in it, so that ``mlaot --help`` is fast.
"""
