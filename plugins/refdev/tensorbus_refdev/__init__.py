"""refdev: a whole tensorbus device in pure Python, to be copied by authors of devices."""
