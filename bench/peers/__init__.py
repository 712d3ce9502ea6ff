"""What people do otherwise, written out to be read and criticised; run in an environment of its own."""
