"""The commands of ``mlaot``, one in each file: ``HELP``, ``DESCRIPTION``, ``EXAMPLES``, ``add`` and ``run``.

``add`` adds the arguments of the command. ``run`` returns the exit status, and imports what only this command needs, so
that ``mlaot --help`` is fast.
"""
