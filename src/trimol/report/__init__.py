"""Reports: one HTML page of runs and studies that needs no network, and its figures as files."""

from trimol.report._page import ReportError, write

__all__ = ["ReportError", "write"]
