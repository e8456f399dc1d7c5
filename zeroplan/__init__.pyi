from zeroplan.api import estimate as estimate
from zeroplan.api import matrix as matrix
from zeroplan.api import recommend as recommend
from zeroplan.errors import ZeroplanError as ZeroplanError
from zeroplan.results.report import Report as Report

__version__: str
