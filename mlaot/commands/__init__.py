"""The commands of ``mlaot``, a file each: ``HELP``, ``DESCRIPTION``, ``EXAMPLES``, ``add`` (its arguments) and ``run``.

``run`` returns the exit status. It imports what only its command needs, so that ``mlaot --help`` is fast.
"""
