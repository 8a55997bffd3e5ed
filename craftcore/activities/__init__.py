"""DID IT HAPPEN: the ledger of irreversible actions. Written before the provider is called, and after."""
