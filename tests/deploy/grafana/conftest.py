"""The dashboards are checked against the same scrape as the rules."""

from tests.deploy.prometheus.conftest import live_metrics

__all__ = ["live_metrics"]
