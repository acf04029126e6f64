"""The paper's figures and tables, run again: `names`, `get`, `run`.

A study writes its figures (SVG and PNG), its data (parquet) and ``study.json`` into a folder of its
own. The ledger of claims reads what the others found and says which of the paper's sentences hold.
"""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
