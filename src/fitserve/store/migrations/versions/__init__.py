"""One file a schema; a file that has been released is never changed."""
