"""What the long runs share: a report in `reports/soak.md`; each shows a progress bar on the terminal."""

from __future__ import annotations

from support.documents.reports import reporting

report = reporting("soak")
