"""The network in mean-field scaling."""

from tests.models.cases import Case

CASE = Case("mean-field", {"width": 8})
