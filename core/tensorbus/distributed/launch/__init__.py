"""The start of ranks: threads of this process, processes of ``tensorbus run``, or those of an engine.

In order: ``thread_ranks``, ``launch_environment``, ``rank_output``, ``supervisor``, ``local_launcher``,
``launcher``.
"""
