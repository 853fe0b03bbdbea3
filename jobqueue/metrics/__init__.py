"""What a process counts, how processes add it up, and the scrape that shows it to Prometheus."""
