"""How ranks come to be: threads of this process, processes of ``tensorbus run``, or those of a launcher.

In order: ``thread_ranks``, ``launch_environment``, ``launcher``.
"""
