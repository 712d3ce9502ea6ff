"""One folder for each chapter, one file for each row; importing a file enters its claims."""
