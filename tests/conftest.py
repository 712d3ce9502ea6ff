"""What holds for all tests: property tests have no time limit, because the machine may be busy.

SIGHUP is not ignored, as it is under nohup: what tests start would inherit that, and rightly ignore it too.

The browser and its pages are fixtures wherever a page is tested.
"""

import signal

from hypothesis import settings

pytest_plugins = ["tests.report.browser"]
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
