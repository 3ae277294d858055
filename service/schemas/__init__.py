"""How do requests and answers look? One module a noun; each builds or reads domain types."""
