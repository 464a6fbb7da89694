"""The store on PostgreSQL: many tenants, many workers, row security on every table."""
