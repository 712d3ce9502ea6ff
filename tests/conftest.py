"""What holds for all tests: property tests have no time limit, because the machine may be busy.

The browser and its pages are fixtures wherever a page is tested.
"""

from hypothesis import settings

pytest_plugins = ["tests.report.browser"]
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
