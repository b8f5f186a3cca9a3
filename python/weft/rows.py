"""Tables: lists of dicts, which pandas can take."""

from __future__ import annotations

from typing import Any, Dict, List

__all__ = ["Rows"]


class Rows(List[Dict[str, Any]]):
    """A list of rows, each a dict with a member for each column that it has."""

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``; ImportError where there is no pandas."""
        try:
            import pandas
        except ImportError as e:
            raise ImportError("pandas is not installed: pip install pandas") from e
        return pandas.DataFrame(list(self))
