"""A rank that is a process: ``FOLDER``; or what starts such ranks here: ``--ranks N COMMAND...``."""

import sys

if sys.argv[1] == "--ranks":
    from tensorbus.distributed.launch import launcher

    sys.exit(launcher.run(sys.argv[3:], int(sys.argv[2])))
else:
    from .rank import main

    main(sys.argv[1])
