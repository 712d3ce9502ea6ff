"""Studies: measurements of apoint itself that take minutes or hours, each a package that can be run again."""
