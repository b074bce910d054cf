"""The conformance kit: whether a device does what every op means, for any device that is installed.

The op table of tensorbus says what to try (``samples``); this package makes the arrays, knows the right
results, and checks kernels, derivatives, batching rules and manifests. It is the one plugin that looks into
core: it measures devices against core's own rules. In order: ``arrays``, ``native``, ``references``,
``agreement``, ``trial``, ``outcome``, ``checks``, ``sources``, ``examination``, ``worker``, ``runner``,
``report``, ``command``, ``plugin``, ``test_conformance``; for communicators ``communication`` and
``test_communication``.
"""
