"""The web console as it is started: by `jobqueue console` (`command`), or by a service (`beside`)."""
