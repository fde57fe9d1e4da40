"""How an older journal becomes a newer one."""
