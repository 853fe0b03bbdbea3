"""How long a worker is deaf while one of two instances stops or is killed. `make gaps` measures every client."""
