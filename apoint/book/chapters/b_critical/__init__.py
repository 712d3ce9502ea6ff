"""B. A bad start is not made up: critical periods."""
