"""The local page. Empty for now: it reads run folders and writes nothing into them."""
