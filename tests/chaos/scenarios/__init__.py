"""The scenarios: `scenario` is the contract, `catalog` the table of all."""
