"""Each file of `deploy/`, tried: systemd, proxies, Prometheus, Grafana, images."""
