"""`snnlib.report`: one page that shows how a net classifies a data set; needs `pip install 'snnlib[train]'`."""

from snnlib.app.report.page import Report, report

__all__ = ["Report", "report"]
