"""How the web console is started: by `jobqueue console` (`command`), or by a service (`beside`)."""
