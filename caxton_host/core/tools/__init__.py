"""Tools: their servers, webhooks, schemas, variables and manifests."""
