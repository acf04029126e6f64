from trimol.report._page import ReportError as ReportError
from trimol.report._page import write as write
